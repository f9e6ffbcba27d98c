import type { FastifyReply } from 'fastify';
import { NodeKind } from '@stowage/proto/stowage/catalog/v1/node';
import type { Node } from '@stowage/proto/stowage/catalog/v1/node';
import { Type } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { sendNothing } from '../http/no-content.ts';
import { ifMatchOf, setEtag } from '../http/conditions.ts';
import { Closed, DirectoryId, Id, Name, NoContent, OnConflict, Page, pageFields } from '../http/schemas.ts';
import {
  AnyNode,
  directoryIdOf,
  File,
  FileWithPlacement,
  onConflictOf,
  present,
  toFile,
  toNode,
  toPlacement,
} from './nodes.ts';

const tags = ['Files'];
const Params = Type.Object({ file_id: Id });
const kind = NodeKind.FILE;
type Tree = AppDependencies['tree'];

/** Contract §4: what a file is and where it lies in the tree. Its content has a file of its own. */
export function fileRoutes(app: App, { tree }: AppDependencies): void {
  recycleBinRoutes(app, tree);
  readRoute(app, tree);
  placeRoutes(app, tree);
  binRoutes(app, tree);
}

function answer(reply: FastifyReply, node: Node | undefined) {
  const file = toFile(present(node));
  setEtag(reply, file.version);
  return file;
}

function recycleBinRoutes(app: App, tree: Tree): void {
  app.route({
    method: 'GET',
    url: '/api/files/recycle-bin',
    config: { access: 'viewer' },
    schema: {
      tags: ['Recycle bin'],
      summary: 'List the recycle bin, newest deletion first',
      querystring: Closed(pageFields),
      response: { 200: Page(AnyNode, 'RecycleBin') },
    },
    handler: async (request) => {
      const { items, nextCursor } = await tree.listRecycleBin(request.query, contextOf(request));
      return { items: items.map(toNode), next_cursor: nextCursor ?? null };
    },
  });

  app.route({
    method: 'DELETE',
    url: '/api/files/recycle-bin',
    config: { access: 'admin', idempotent: true },
    schema: { tags: ['Recycle bin'], summary: 'Empty the recycle bin for good', response: { 204: NoContent } },
    handler: async (request, reply) => {
      await tree.emptyRecycleBin({}, contextOf(request), { timeoutMs: 60_000 });
      return sendNothing(reply);
    },
  });
}

function readRoute(app: App, tree: Tree): void {
  app.route({
    method: 'GET',
    url: '/api/files/:file_id',
    config: { access: 'viewer', problems: ['not_found'] },
    schema: {
      tags,
      summary: 'Read a file’s metadata and placement',
      params: Params,
      response: { 200: FileWithPlacement },
    },
    handler: async (request, reply) => {
      const { node, placement } = await tree.getNode(
        { id: request.params.file_id, kind, withPlacement: true },
        contextOf(request),
      );
      return { ...answer(reply, node), placement: toPlacement(present(placement)) };
    },
  });
}

function placeRoutes(app: App, tree: Tree): void {
  app.route({
    method: 'POST',
    url: '/api/files/:file_id/rename',
    config: {
      access: 'editor',
      idempotent: true,
      problems: ['not_found', 'name_conflict', 'state_conflict', 'precondition_failed'],
    },
    schema: {
      tags,
      summary: 'Rename a file',
      params: Params,
      body: Closed({ name: Name, on_conflict: Type.Optional(OnConflict) }),
      response: { 200: File },
    },
    handler: async (request, reply) => {
      const { name, on_conflict: onConflict } = request.body;
      const { node } = await tree.renameNode(
        { id: request.params.file_id, kind, name, onConflict: onConflictOf(onConflict), ifMatch: ifMatchOf(request) },
        contextOf(request),
      );
      return answer(reply, node);
    },
  });

  app.route({
    method: 'POST',
    url: '/api/files/:file_id/move',
    config: {
      access: 'editor',
      idempotent: true,
      problems: ['not_found', 'name_conflict', 'state_conflict', 'precondition_failed'],
    },
    schema: {
      tags,
      summary: 'Move a file',
      params: Params,
      body: Closed({ directory_id: DirectoryId, name: Type.Optional(Name), on_conflict: Type.Optional(OnConflict) }),
      response: { 200: File },
    },
    handler: async (request, reply) => {
      const { directory_id: directory, name, on_conflict: onConflict } = request.body;
      const { node } = await tree.moveNode(
        {
          id: request.params.file_id,
          kind,
          parentId: directoryIdOf(directory),
          name,
          onConflict: onConflictOf(onConflict),
          ifMatch: ifMatchOf(request),
        },
        contextOf(request),
      );
      return answer(reply, node);
    },
  });
}

function binRoutes(app: App, tree: Tree): void {
  app.route({
    method: 'DELETE',
    url: '/api/files/:file_id',
    config: { access: 'editor', idempotent: true, problems: ['not_found', 'state_conflict', 'precondition_failed'] },
    schema: {
      tags,
      summary: 'Put a file into the recycle bin, or remove a recycled one for good',
      params: Params,
      querystring: Closed({ permanent: Type.Boolean({ default: false }) }),
      response: { 200: File, 204: NoContent },
    },
    handler: async (request, reply) => {
      const id = request.params.file_id;
      const ifMatch = ifMatchOf(request);
      if (!request.query.permanent)
        return answer(reply, (await tree.recycleNode({ id, kind, ifMatch }, contextOf(request))).node);
      await tree.purgeNode({ id, kind, ifMatch }, contextOf(request));
      return sendNothing(reply);
    },
  });

  app.route({
    method: 'POST',
    url: '/api/files/:file_id/restore',
    config: {
      access: 'editor',
      idempotent: true,
      problems: ['not_found', 'name_conflict', 'state_conflict', 'parent_missing', 'precondition_failed'],
    },
    schema: {
      tags,
      summary: 'Bring a file back from the recycle bin',
      params: Params,
      body: Closed({
        directory_id: Type.Optional(DirectoryId),
        name: Type.Optional(Name),
        on_conflict: Type.Optional(OnConflict),
      }),
      response: { 200: File },
    },
    handler: async (request, reply) => {
      const { directory_id: directory, name, on_conflict: onConflict } = request.body;
      const { node } = await tree.restoreNode(
        {
          id: request.params.file_id,
          kind,
          parentId: directory === undefined ? undefined : directoryIdOf(directory),
          name,
          onConflict: onConflictOf(onConflict),
          ifMatch: ifMatchOf(request),
        },
        contextOf(request),
      );
      return answer(reply, node);
    },
  });
}
