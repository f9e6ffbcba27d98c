import { startEmptyServer } from '../baselines/baseline.ts';
import { alternate } from '../measure/alternate.ts';
import { endpointOf, gets, longReads, mebibyte, requester, shortReads } from './contenders.ts';
import { Started } from './workload.ts';
import type { Workload } from './workload.ts';

/** Whether the driver could do more than it is asked for: the same driver before a server that does nothing. */
export const driverRequests: Workload = {
  name: 'driver',
  title: 'the driver against a server that does nothing: requests, 32 connections',
  run: async (setting) => {
    await using started = new Started(setting, 'driver');
    const server = await started.add(startEmptyServer());
    const request = { method: 'GET', path: '/0', expect: 204 };
    const pace = { connections: 32, count: setting.small ? 500 : 30_000, readBytes: shortReads };
    const contender = requester(setting, 'empty server', endpointOf(server), [request], pace);
    return await alternate('driver', 'per s', [contender], setting.rounds);
  },
};

/** The same for bodies, either way. */
export const driverBytes: Workload = {
  name: 'driver-bytes',
  title: 'the driver against a server that forgets a body, and one that sends the same bytes again and again: 1 GiB',
  run: async (setting) => {
    await using started = new Started(setting, 'driver-bytes');
    const server = await started.add(startEmptyServer());
    const body = (setting.small ? 16 : 1024) * mebibyte;
    const request = { method: 'PUT', path: '/', body, expect: 204 };
    const pace = { connections: 1, count: 1, readBytes: longReads };
    const endpoint = endpointOf(server);
    const contenders = [
      requester(setting, 'upload', endpoint, [request], pace),
      requester(setting, 'download', endpoint, gets([`/${body / mebibyte}`]), pace),
    ];
    return await alternate('driver-bytes', 'MiB/s', contenders, setting.rounds);
  },
};
