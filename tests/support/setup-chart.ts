import { helm } from './helm.ts';
import { installValidator } from './kubernetes-schemas.ts';

export default (): void => {
  if (helm !== null) installValidator();
  else process.stderr.write('Left out, as there is no helm on PATH or in ~/.cache/test-cluster/bin: tests/chart\n');
};
