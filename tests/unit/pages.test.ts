import { describe, expect, test } from '@jest/globals';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { parse } from 'yaml';

const root = join(import.meta.dirname, '../..');
const pages = globSync(['*.md', 'deploy/**/*.md', 'charts/**/*.md', 'bench/*.md'], { cwd: root });

function read(page: string): string {
  return readFileSync(join(root, page), 'utf8');
}

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(page: string): string[] {
  return [...read(page).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(/\s/g, '-'),
  );
}

/** Links of a page that lead nowhere. */
function deadLinks(page: string): string[] {
  const links = [...read(page).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link);
  return links.filter((link) => {
    if (/^[a-z]+:/.test(link)) return false;
    const [file = '', anchor] = link.split('#');
    const target = file === '' ? page : relative(root, join(root, dirname(page), file));
    if (!existsSync(join(root, target))) return true;
    return anchor !== undefined && !anchorsOf(target).includes(anchor);
  });
}

describe('pages', () => {
  test.each(pages)('%s has no link that leads nowhere', (page) => {
    expect(deadLinks(page)).toEqual([]);
  });

  test('each alert leads to the part of a page that says what to do', () => {
    const { groups } = parse(read('charts/stowage/files/alerts.yaml'));
    const runbooks: string[] = groups.flatMap((group: { rules: { annotations: { runbook_url: string } }[] }) =>
      group.rules.map(({ annotations }) => annotations.runbook_url),
    );
    expect(runbooks.length).toBeGreaterThan(0);
    const lost = runbooks.filter((url) => {
      const [page = '', anchor = ''] = url.replace(/^.*(?=deploy\/)/, '').split('#');
      return !anchorsOf(page).includes(anchor);
    });
    expect(lost).toEqual([]);
  });
});
