/** Who may use a route, as contract §2 says. */
export type Access = 'anybody' | 'viewer' | 'editor' | 'admin';

/** Every route there is, with who may use it. A route that the service has and this table lacks fails a test. */
export const accessOfRoutes: Readonly<Record<string, Access>> = {
  'POST /api/auth/login': 'anybody',
  'POST /api/auth/logout': 'viewer',
  'GET /api/auth/me': 'viewer',

  'GET /api/users': 'admin',
  'POST /api/users': 'admin',
  'PATCH /api/users/{user_id}': 'admin',
  'DELETE /api/users/{user_id}': 'admin',

  'GET /api/directories/{directory_id}': 'viewer',
  'GET /api/directories/{directory_id}/children': 'viewer',
  'POST /api/directories': 'editor',
  'POST /api/directories/{directory_id}/rename': 'editor',
  'POST /api/directories/{directory_id}/move': 'editor',
  'DELETE /api/directories/{directory_id}': 'editor',
  'POST /api/directories/{directory_id}/restore': 'editor',

  'GET /api/files/recycle-bin': 'viewer',
  'DELETE /api/files/recycle-bin': 'admin',
  'GET /api/files/{file_id}': 'viewer',
  'GET /api/files/{file_id}/download': 'viewer',
  'HEAD /api/files/{file_id}/download': 'viewer',
  'GET /api/files/{file_id}/stream': 'viewer',
  'HEAD /api/files/{file_id}/stream': 'viewer',
  'GET /api/files/{file_id}/preview': 'viewer',
  'POST /api/files/{file_id}/rename': 'editor',
  'POST /api/files/{file_id}/move': 'editor',
  'DELETE /api/files/{file_id}': 'editor',
  'POST /api/files/{file_id}/restore': 'editor',

  'OPTIONS /files': 'anybody',
  'POST /files': 'editor',
  'OPTIONS /files/{upload_id}': 'anybody',
  'HEAD /files/{upload_id}': 'editor',
  'PATCH /files/{upload_id}': 'editor',
  'DELETE /files/{upload_id}': 'editor',
  'POST /files/{upload_id}': 'editor',
  'GET /api/uploads/{upload_id}': 'editor',
  'POST /api/uploads/{upload_id}/finalize': 'editor',

  'GET /api/backends': 'admin',
  'GET /api/backends/{backend_id}': 'admin',
  'POST /api/backends': 'admin',
  'PATCH /api/backends/{backend_id}': 'admin',
  'POST /api/backends/{backend_id}/check': 'admin',
  'POST /api/backends/{backend_id}/enable': 'admin',
  'POST /api/backends/{backend_id}/disable': 'admin',
  'POST /api/backends/{backend_id}/forget-replicas': 'admin',
  'DELETE /api/backends/{backend_id}': 'admin',

  'GET /api/jobs': 'admin',
  'GET /api/jobs/{job_id}': 'admin',
  'POST /api/jobs/{job_id}/retry': 'admin',
  'POST /api/jobs/{job_id}/cancel': 'admin',
  'POST /api/jobs/run-pending': 'admin',
  'POST /api/jobs/enqueue-health-checks': 'admin',
  'POST /api/jobs/enqueue-full-reconcile': 'admin',

  'GET /api/policies/placement': 'admin',
  'GET /api/policies/placement/preview': 'admin',
  'GET /api/policies/placement/{file_class}': 'admin',
  'PUT /api/policies/placement/{file_class}': 'admin',
  'DELETE /api/policies/placement/{file_class}': 'admin',

  'GET /api/exports/metadata': 'admin',
  'HEAD /api/exports/metadata': 'admin',
  'GET /api/exports/metadata/schema': 'admin',
  'GET /api/exports/metadata/integrity': 'admin',
  'POST /api/exports/metadata/restore-plan': 'admin',
  'POST /api/exports/metadata/validate': 'admin',
  'POST /api/exports/metadata/import': 'admin',

  'GET /api/system/health': 'anybody',
  'GET /api/system/ready': 'anybody',
  'GET /api/system/mode': 'viewer',
  'PUT /api/system/mode': 'admin',
};

/** The routes of the interface that are built so far, as interface.md writes them. */
export const ofTheInterface = [
  'POST /api/auth/login',
  'POST /api/auth/logout',
  'GET /api/auth/me',
  'GET /api/directories/{directory_id}/children',
  'POST /api/directories',
  'POST /api/directories/{directory_id}/rename',
  'POST /api/directories/{directory_id}/move',
  'GET /api/files/{file_id}',
  'GET /api/files/{file_id}/download',
  'GET /api/files/{file_id}/preview',
  'GET /api/files/{file_id}/stream',
  'POST /api/files/{file_id}/rename',
  'POST /api/files/{file_id}/move',
  'DELETE /api/files/{file_id}',
  'POST /api/files/{file_id}/restore',
  'GET /api/files/recycle-bin',
  'POST /files',
  'HEAD /files/{upload_id}',
  'PATCH /files/{upload_id}',
  'POST /api/uploads/{upload_id}/finalize',
  'GET /api/backends',
  'POST /api/backends',
  'PATCH /api/backends/{backend_id}',
  'POST /api/backends/{backend_id}/check',
  'POST /api/backends/{backend_id}/disable',
  'POST /api/backends/{backend_id}/enable',
  'DELETE /api/backends/{backend_id}',
  'GET /api/jobs',
  'GET /api/jobs/{job_id}',
  'POST /api/jobs/{job_id}/retry',
  'POST /api/jobs/run-pending',
  'POST /api/jobs/enqueue-health-checks',
  'POST /api/jobs/enqueue-full-reconcile',
  'GET /api/policies/placement',
  'PUT /api/policies/placement/{file_class}',
  'GET /api/policies/placement/preview',
  'GET /api/exports/metadata',
  'GET /api/exports/metadata/integrity',
  'POST /api/exports/metadata/restore-plan',
  'POST /api/exports/metadata/validate',
  'POST /api/exports/metadata/import',
  'GET /api/system/health',
  'GET /api/system/ready',
];

/** An id of the right form that names nothing. */
export const unknownId = '0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d';

const methods = new Set(['get', 'put', 'post', 'delete', 'options', 'head', 'patch', 'trace']);

/** `METHOD /path` of each operation of an OpenAPI document. */
export function routesOf(document: { paths?: Record<string, Record<string, unknown>> }): string[] {
  return Object.entries(document.paths ?? {}).flatMap(([path, operations]) =>
    Object.keys(operations)
      .filter((method) => methods.has(method))
      .map((method) => `${method.toUpperCase()} ${path}`),
  );
}
