import type { Generated } from 'kysely';
import type { Role } from '@stowage/common/rpc/context';

/** The tables that the gateway owns. */
export interface Tables {
  'identity.users': {
    id: string;
    username: string;
    password_hash: string;
    role: Role;
    disabled: Generated<boolean>;
    created_at: Generated<Date>;
    updated_at: Generated<Date>;
  };
  'identity.sessions': {
    id: string;
    token_hash: Buffer;
    user_id: string;
    created_at: Generated<Date>;
    last_used_at: Generated<Date>;
  };
  'identity.login_attempts': { key: string; attempts: number; window_started_at: Date };
  'identity.system_mode': { only_row: Generated<boolean>; mode: 'normal' | 'read_only'; changed_at: Generated<Date> };
}
