import { createHash } from 'node:crypto';
import { nkeys } from '@nats-io/transport-node';

type KeyPair = ReturnType<typeof nkeys.createUser>;

/** What a user may publish and subscribe to. */
export interface NatsPermissions {
  publish: string[];
  subscribe: string[];
}

/** An operator with one account that has JetStream: the lines of the server's configuration, and creds for its users. */
export interface NatsOperator {
  config: string;
  /** The text of a creds file. */
  creds(permissions: NatsPermissions): string;
}

/** As `nsc` makes them. */
export function makeOperator(): NatsOperator {
  const [operator, account, system] = [nkeys.createOperator(), nkeys.createAccount(), nkeys.createAccount()];
  const storage = { mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };
  const limits = { subs: -1, data: -1, payload: -1, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 };
  const accountJwt = jwt(operator, account, { type: 'account', version: 2, limits: { ...limits, ...storage } });
  const systemJwt = jwt(operator, system, { type: 'account', version: 2, limits });
  const operatorJwt = jwt(operator, operator, { type: 'operator', version: 2 });
  return {
    config: `operator: ${operatorJwt}
      system_account: ${system.getPublicKey()}
      resolver: MEMORY
      resolver_preload: { ${account.getPublicKey()}: ${accountJwt}, ${system.getPublicKey()}: ${systemJwt} }`,
    creds: ({ publish, subscribe }) => {
      const user = nkeys.createUser();
      const permissions = { pub: { allow: publish }, sub: { allow: subscribe } };
      const claims = { type: 'user', version: 2, subs: -1, data: -1, payload: -1, ...permissions };
      const seed = new TextDecoder().decode(user.getSeed());
      return `-----BEGIN NATS USER JWT-----
${jwt(account, user, claims)}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
${seed}
------END USER NKEY SEED------
`;
    },
  };
}

/** What `issuer` says of `subject`, signed. */
function jwt(issuer: KeyPair, subject: KeyPair, nats: object): string {
  const about = {
    iat: Math.floor(Date.now() / 1_000),
    iss: issuer.getPublicKey(),
    name: 'test',
    sub: subject.getPublicKey(),
    nats,
  };
  const jti = createHash('sha256').update(JSON.stringify(about)).digest('base64url');
  const signed = `${encode({ typ: 'JWT', alg: 'ed25519-nkey' })}.${encode({ ...about, jti })}`;
  return `${signed}.${Buffer.from(issuer.sign(Buffer.from(signed))).toString('base64url')}`;
}

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
