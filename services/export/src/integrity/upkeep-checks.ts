import type { Check } from './check.ts';

/** Beyond these nobody is at work any more: a dead worker's job is taken over within a minute, an expired upload ended within the hour. */
const jobHours = 1;
const uploadHours = 24;

const defaultBackend: Check = {
  from: `(select count(*) filter (where is_default) as defaults from registry.backends) k`,
  rules: [
    { kind: 'no_default_backend', when: 'k.defaults = 0', id: 'null', detail: `'No backend is the default one.'` },
    {
      kind: 'default_backends',
      when: 'k.defaults > 1',
      id: 'null',
      detail: `format('%s backends are the default one.', k.defaults)`,
    },
  ],
};

const backends: Check = {
  from: `(select *, count(*) over (partition by normalize(name, nfc)) as bearers from registry.backends) k`,
  rules: [
    {
      kind: 'backend_name_clash',
      when: 'k.bearers > 1',
      id: 'k.id',
      detail: `format('%s backends are named «%s».', k.bearers, k.name)`,
    },
  ],
};

const policies: Check = {
  from: `placement.policies p cross join lateral (
      select count(*) as named, count(distinct b.backend_id) as distinct_named,
        string_agg(b.backend_id::text, ', ') filter (where k.id is null) as unknown
      from placement.policy_backends b left join registry.backends k on k.id = b.backend_id
      where b.file_class = p.file_class) c`,
  rules: [
    {
      kind: 'policy_names_unknown_backend',
      when: 'c.unknown is not null',
      id: 'p.file_class',
      detail: `format('The policy names %s, which is no backend.', c.unknown)`,
    },
    {
      kind: 'policy_contradiction',
      when: `p.replicas < 1 or p.sync_replicas not between 1 and p.replicas or p.replicas > c.named or c.named <> c.distinct_named`,
      id: 'p.file_class',
      detail: `format('The policy wants %s replicas, %s of them at once, and names %s backends, %s of them different.', p.replicas,
        p.sync_replicas, c.named, c.distinct_named)`,
    },
  ],
};

const strayPolicyBackends: Check = {
  from: `placement.policy_backends b`,
  rules: [
    {
      kind: 'backend_of_no_policy',
      when: `not exists (select from placement.policies p where p.file_class = b.file_class)`,
      id: 'b.file_class',
      detail: `format('Backend %s is named for a class that has no policy.', b.backend_id)`,
    },
  ],
};

const defaultPolicy: Check = {
  from: '(select) nothing',
  rules: [
    {
      kind: 'no_default_policy',
      when: `not exists (select from placement.policies where file_class = 'default')`,
      id: `'default'`,
      detail: `'There is no policy for classes that have none of their own.'`,
    },
  ],
};

const uploads: Check = {
  from: 'upload.upload_standing u',
  rules: [
    {
      kind: 'upload_stuck',
      when: `u.state in ('open', 'finalizing', 'abandoned') and not u.is_being_written
        and u.expires_at < now() - interval '${uploadHours} hours'`,
      id: 'u.id',
      detail: `format('The upload is %s and expired at %s: nobody ended it.', u.state, u.expires_at)`,
    },
  ],
};

const jobs: Check = {
  from: 'jobs.jobs j',
  rules: [
    {
      kind: 'job_without_worker',
      when: `j.state = 'running' and (j.lease_until is null or j.lease_until < now() - interval '${jobHours} hours')`,
      id: 'j.id',
      detail: `format('The job %s is said to run, but its lease ended at %s and nobody took it over.', j.kind,
        coalesce(j.lease_until::text, 'no time'))`,
    },
    {
      kind: 'job_contradiction',
      when: `(j.finished_at is not null) <> (j.state in ('succeeded', 'failed', 'cancelled'))
        or (j.state <> 'running' and j.lease_until is not null)`,
      id: 'j.id',
      detail: `format('The job %s is %s, finished at %s and leased until %s.', j.kind, j.state,
        coalesce(j.finished_at::text, 'no time'), coalesce(j.lease_until::text, 'no time'))`,
    },
  ],
};

/**
 * What lies on backends and no metadata knows, while an import holds removals: files newer than the imported document. At other times such
 * objects are leftovers that reconcile removes by its rules.
 */
const unknownObjects: Check = {
  from: `placement.unknown_objects o
    cross join (select removals_held_until from placement.removal_hold where removals_held_until > now()) h
    join registry.backends k on k.id = o.backend_id`,
  rules: [
    {
      kind: 'unknown_object',
      when: `not exists (select from catalog.blobs b where b.id = case
        when o.key ~ '^blobs/[0-9a-f]{2}/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then substring(o.key from 10)::uuid end)`,
      id: `substring(o.key from '[^/]*$')`,
      detail: `format('%s bytes under «%s» on backend «%s», of %s, are of no file: newer than what was imported? Nothing is removed before %s.',
        o.size, o.key, k.name, o.modified_at, h.removals_held_until)`,
    },
  ],
};

export const upkeepChecks: readonly Check[] = [
  defaultBackend,
  backends,
  policies,
  strayPolicyBackends,
  defaultPolicy,
  uploads,
  jobs,
  unknownObjects,
];
