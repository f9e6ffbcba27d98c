import type { Span } from '@opentelemetry/api';
import { isId } from '../ids.ts';

/** What of a request its span is made from. */
interface Request {
  method: string;
  params: unknown;
  routeOptions: { url?: string | undefined };
}

/** A route as the API's description writes it: `/api/files/{file_id}`. */
export function routeTemplate(url: string | undefined): string | null {
  if (url === undefined) return null;
  const template = templates.get(url) ?? url.replaceAll(/:(\w+)/g, '{$1}');
  templates.set(url, template);
  return template;
}

/** Of all routes that were asked for. */
const templates = new Map<string, string>();

/**
 * Names the span of a request by its route and tells the ids in its path. The path itself stays out: at an address that is
 * no route anything may stand in it, and a query may hold names, as a cursor ends with the last one of its page.
 */
export function describeRequest(span: Span, { method, params, routeOptions }: Request): void {
  const route = routeTemplate(routeOptions.url);
  span.updateName(route === null ? method : `${method} ${route}`);
  span.setAttribute('url.path', route ?? '');
  if (route === null) return;
  span.setAttribute('http.route', route);
  if (typeof params !== 'object' || params === null) return;
  for (const [name, value] of Object.entries(params)) {
    if (name.endsWith('_id') && typeof value === 'string' && isId(value))
      span.setAttribute(`stowage.${name.slice(0, -3)}.id`, value);
  }
}

/** Names the span of a handler, which has the request's span around it. */
export function describeLifecycle(span: Span): void {
  span.updateName('handler');
}
