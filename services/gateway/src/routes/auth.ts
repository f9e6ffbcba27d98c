import { Type } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { logIn } from '../auth/log-in.ts';
import { endSession } from '../auth/sessions.ts';
import { actorOf } from '../http/call-context.ts';
import { sendNothing } from '../http/no-content.ts';
import { Closed, Id, NoContent, Time } from '../http/schemas.ts';
import { Role, User } from './users.ts';

const Login = Type.Object(
  {
    access_token: Type.String({ examples: ['stw_…'] }),
    token_type: Type.Literal('Bearer'),
    expires_in: Type.Integer({ description: 'In seconds, if the token is not used meanwhile.' }),
    expires_at: Time,
    user: User,
  },
  { title: 'Login' },
);

const Me = Type.Object(
  {
    user: Type.Object({ id: Id, username: Type.String(), role: Role, created_at: Time }),
    session: Type.Object({ id: Id, created_at: Time, expires_at: Time }),
  },
  { title: 'Me' },
);

const Credentials = Closed({
  username: Type.String({ maxLength: 1024, examples: ['admin'] }),
  password: Type.String({ maxLength: 1024 }),
});

/** Contract §2: log in, log out, who am I. */
export function authRoutes(app: App, { db, settings }: AppDependencies): void {
  app.route({
    method: 'POST',
    url: '/api/auth/login',
    config: { access: 'public', problems: ['invalid_credentials', 'rate_limited'], unhurried: true },
    schema: { tags: ['Auth'], summary: 'Log in', body: Credentials, response: { 200: Login } },
    handler: async (request) => {
      const { token, expiresAt, livesMs, user } = await logIn(db, { ...request.body, address: request.ip }, settings);
      return {
        access_token: token,
        token_type: 'Bearer' as const,
        expires_in: Math.floor(livesMs / 1000),
        expires_at: expiresAt.toISOString(),
        user,
      };
    },
  });

  app.route({
    method: 'POST',
    url: '/api/auth/logout',
    config: { access: 'viewer', allowedReadOnly: true },
    schema: {
      tags: ['Auth'],
      summary: 'Log out: the token is dead from then on',
      body: Closed({}),
      response: { 204: NoContent },
    },
    handler: async (request, reply) => {
      actorOf(request);
      if (request.session) await endSession(db, request.session.id);
      return sendNothing(reply);
    },
  });

  app.route({
    method: 'GET',
    url: '/api/auth/me',
    config: { access: 'viewer' },
    schema: { tags: ['Auth'], summary: 'Who am I', response: { 200: Me } },
    handler: async (request) => {
      const { userId, username, role } = actorOf(request);
      const { session } = request;
      if (!session) throw new Error('a request with an actor has a session');
      return {
        user: { id: userId, username, role, created_at: session.userCreatedAt.toISOString() },
        session: {
          id: session.id,
          created_at: session.createdAt.toISOString(),
          expires_at: session.expiresAt.toISOString(),
        },
      };
    },
  });
}
