import { NodeKind } from '@stowage/proto/stowage/catalog/v1/node';
import { SortKey } from '@stowage/proto/stowage/catalog/v1/tree';
import { Type } from 'typebox';
import type { FastifyReply } from 'fastify';
import type { Node } from '@stowage/proto/stowage/catalog/v1/node';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { sendNothing } from '../http/no-content.ts';
import { ifMatchOf, setEtag } from '../http/conditions.ts';
import { Closed, DirectoryId, Name, NoContent, Nullable, OnConflict, pageFields } from '../http/schemas.ts';
import { AnyNode, Directory, directoryIdOf, onConflictOf, present, toDirectory, toNode } from './nodes.ts';

const tags = ['Directories'];
const Params = Type.Object({ directory_id: DirectoryId });
const kind = NodeKind.DIRECTORY;

const sortKeys = {
  name: SortKey.NAME,
  created_at: SortKey.CREATED_AT,
  updated_at: SortKey.UPDATED_AT,
  size: SortKey.SIZE,
} as const;

const ChildrenQuery = Closed({
  ...pageFields,
  sort: Type.Union(
    [Type.Literal('name'), Type.Literal('created_at'), Type.Literal('updated_at'), Type.Literal('size')],
    {
      default: 'name',
      description: 'Directories come first in every order; they have no size and keep to their names then.',
    },
  ),
  order: Type.Union([Type.Literal('asc'), Type.Literal('desc')], { default: 'asc' }),
  kind: Type.Optional(Type.Union([Type.Literal('directory'), Type.Literal('file')])),
});

const Children = Type.Object(
  { directory: Directory, items: Type.Array(AnyNode), next_cursor: Nullable(Type.String()) },
  { title: 'Children' },
);

/** Contract §3: the tree of directories. */
export function directoryRoutes(app: App, { tree }: AppDependencies): void {
  readRoutes(app, tree);
  createRoute(app, tree);
  placeRoutes(app, tree);
  binRoutes(app, tree);
}

type Tree = AppDependencies['tree'];

function answer(reply: FastifyReply, node: Node | undefined) {
  const directory = toDirectory(present(node));
  setEtag(reply, directory.version);
  return directory;
}

function readRoutes(app: App, tree: Tree): void {
  app.route({
    method: 'GET',
    url: '/api/directories/:directory_id',
    config: { access: 'viewer', problems: ['not_found'] },
    schema: { tags, summary: 'Read a directory', params: Params, response: { 200: Directory } },
    handler: async (request, reply) => {
      const id = directoryIdOf(request.params.directory_id);
      return answer(reply, (await tree.getNode({ id, kind }, contextOf(request))).node);
    },
  });

  app.route({
    method: 'GET',
    url: '/api/directories/:directory_id/children',
    config: { access: 'viewer', problems: ['not_found'] },
    schema: {
      tags,
      summary: 'List a directory, page by page',
      params: Params,
      querystring: ChildrenQuery,
      response: { 200: Children },
    },
    handler: async (request) => {
      const { limit, cursor, sort, order } = request.query;
      const only = request.query.kind;
      const answer = await tree.listChildren(
        {
          directoryId: directoryIdOf(request.params.directory_id),
          sort: sortKeys[sort],
          descending: order === 'desc',
          kind: only === undefined ? NodeKind.UNSPECIFIED : only === 'file' ? NodeKind.FILE : NodeKind.DIRECTORY,
          limit,
          cursor,
        },
        contextOf(request),
      );
      return {
        directory: toDirectory(present(answer.directory)),
        items: answer.items.map(toNode),
        next_cursor: answer.nextCursor ?? null,
      };
    },
  });
}

function createRoute(app: App, tree: Tree): void {
  app.route({
    method: 'POST',
    url: '/api/directories',
    config: { access: 'editor', idempotent: true, problems: ['not_found', 'name_conflict', 'state_conflict'] },
    schema: {
      tags,
      summary: 'Make a directory',
      body: Closed({
        parent_id: Type.Optional(DirectoryId),
        name: Name,
        on_conflict: Type.Optional(OnConflict),
      }),
      response: { 201: Directory },
    },
    handler: async (request, reply) => {
      const { parent_id: parent = 'root', name, on_conflict: onConflict } = request.body;
      const { node } = await tree.createDirectory(
        { parentId: directoryIdOf(parent), name, onConflict: onConflictOf(onConflict) },
        contextOf(request),
      );
      void reply.code(201).header('location', `/api/directories/${present(node).id}`);
      return answer(reply, node);
    },
  });
}

function placeRoutes(app: App, tree: Tree): void {
  app.route({
    method: 'POST',
    url: '/api/directories/:directory_id/rename',
    config: {
      access: 'editor',
      idempotent: true,
      problems: ['not_found', 'name_conflict', 'state_conflict', 'precondition_failed'],
    },
    schema: {
      tags,
      summary: 'Rename a directory',
      params: Params,
      body: Closed({ name: Name, on_conflict: Type.Optional(OnConflict) }),
      response: { 200: Directory },
    },
    handler: async (request, reply) => {
      const id = directoryIdOf(request.params.directory_id);
      const { name, on_conflict: onConflict } = request.body;
      const { node } = await tree.renameNode(
        { id, kind, name, onConflict: onConflictOf(onConflict), ifMatch: ifMatchOf(request) },
        contextOf(request),
      );
      return answer(reply, node);
    },
  });

  app.route({
    method: 'POST',
    url: '/api/directories/:directory_id/move',
    config: {
      access: 'editor',
      idempotent: true,
      problems: ['not_found', 'name_conflict', 'state_conflict', 'cycle', 'precondition_failed'],
    },
    schema: {
      tags,
      summary: 'Move a directory, with all below it, at the cost of one row',
      params: Params,
      body: Closed({ parent_id: DirectoryId, name: Type.Optional(Name), on_conflict: Type.Optional(OnConflict) }),
      response: { 200: Directory },
    },
    handler: async (request, reply) => {
      const id = directoryIdOf(request.params.directory_id);
      const { parent_id: parent, name, on_conflict: onConflict } = request.body;
      const { node } = await tree.moveNode(
        {
          id,
          kind,
          parentId: directoryIdOf(parent),
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
    url: '/api/directories/:directory_id',
    config: { access: 'editor', idempotent: true, problems: ['not_found', 'state_conflict', 'precondition_failed'] },
    schema: {
      tags,
      summary: 'Put a directory into the recycle bin, or remove a recycled one for good',
      params: Params,
      querystring: Closed({ permanent: Type.Boolean({ default: false }) }),
      response: { 200: Directory, 204: NoContent },
    },
    handler: async (request, reply) => {
      const id = directoryIdOf(request.params.directory_id);
      const ifMatch = ifMatchOf(request);
      if (!request.query.permanent)
        return answer(reply, (await tree.recycleNode({ id, kind, ifMatch }, contextOf(request))).node);
      await tree.purgeNode({ id, kind, ifMatch }, contextOf(request));
      return sendNothing(reply);
    },
  });

  app.route({
    method: 'POST',
    url: '/api/directories/:directory_id/restore',
    config: {
      access: 'editor',
      idempotent: true,
      problems: ['not_found', 'name_conflict', 'state_conflict', 'parent_missing', 'precondition_failed'],
    },
    schema: {
      tags,
      summary: 'Bring a directory back from the recycle bin with all that went with it',
      params: Params,
      body: Closed({
        parent_id: Type.Optional(DirectoryId),
        directory_id: Type.Optional(DirectoryId),
        name: Type.Optional(Name),
        on_conflict: Type.Optional(OnConflict),
      }),
      response: { 200: Directory },
    },
    handler: async (request, reply) => {
      const { parent_id: parent, directory_id: directory, name, on_conflict: onConflict } = request.body;
      const target = parent ?? directory;
      const { node } = await tree.restoreNode(
        {
          id: directoryIdOf(request.params.directory_id),
          kind,
          parentId: target === undefined ? undefined : directoryIdOf(target),
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
