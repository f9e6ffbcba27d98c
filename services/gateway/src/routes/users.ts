import { Type } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { usernamePattern } from '../auth/username.ts';
import { createUser, deleteUser, listUsers, updateUser } from '../auth/users.ts';
import { sendNothing } from '../http/no-content.ts';
import { Closed, Id, NoContent, Page, pageFields, Time } from '../http/schemas.ts';

export const Role = Type.Union([Type.Literal('viewer'), Type.Literal('editor'), Type.Literal('admin')]);

export const User = Type.Object(
  { id: Id, username: Type.String(), role: Role, disabled: Type.Boolean(), created_at: Time },
  { title: 'User' },
);

const Username = Type.String({ pattern: usernamePattern, examples: ['ada'] });
const Password = Type.String({ minLength: 12, maxLength: 256, description: '12 to 256 characters.' });
const Params = Type.Object({ user_id: Id });

/** Contract §2, beyond the interface: users, for admins. */
export function userRoutes(app: App, { db }: AppDependencies): void {
  app.route({
    method: 'GET',
    url: '/api/users',
    config: { access: 'admin' },
    schema: {
      tags: ['Users'],
      summary: 'List users by name',
      querystring: Closed(pageFields),
      response: { 200: Page(User, 'UserList') },
    },
    handler: (request) => listUsers(db, request.query),
  });

  app.route({
    method: 'POST',
    url: '/api/users',
    config: { access: 'admin', problems: ['name_conflict'] },
    schema: {
      tags: ['Users'],
      summary: 'Make a user',
      body: Closed({ username: Username, password: Password, role: Role }),
      response: { 201: User },
    },
    handler: async (request, reply) => {
      const user = await createUser(db, request.body);
      return reply.code(201).header('location', `/api/users/${user.id}`).send(user);
    },
  });

  app.route({
    method: 'PATCH',
    url: '/api/users/:user_id',
    config: { access: 'admin', problems: ['not_found', 'state_conflict'] },
    schema: {
      tags: ['Users'],
      summary: 'Change role or password, disable or enable',
      description: 'A new role or password, or disabling, ends all sessions of the user.',
      params: Params,
      body: Closed({
        role: Type.Optional(Role),
        password: Type.Optional(Password),
        disabled: Type.Optional(Type.Boolean()),
      }),
      response: { 200: User },
    },
    handler: (request) => updateUser(db, request.params.user_id, request.body),
  });

  app.route({
    method: 'DELETE',
    url: '/api/users/:user_id',
    config: { access: 'admin', problems: ['not_found', 'state_conflict'] },
    schema: { tags: ['Users'], summary: 'Remove a user', params: Params, response: { 204: NoContent } },
    handler: async (request, reply) => {
      await deleteUser(db, request.params.user_id);
      return sendNothing(reply);
    },
  });
}
