// etcd3 of npm.
const { Etcd3 } = require('etcd3');

const say = (what, value) => console.log(`${what}: ${JSON.stringify(value)}`);

(async () => {
  const c = new Etcd3({ hosts: `http://${process.argv[2]}` });
  await c.put('js/a').value('1');
  say('get', await c.get('js/a').string());
  say('get nothing', await c.get('js/none').string());
  await c.put('js/l/1').value('a');
  await c.put('js/l/2').value('b');
  say('prefix', await c.getAll().prefix('js/l/').strings());
  say('keys', await c.getAll().prefix('js/l/').keys());
  say('descending', await c.getAll().prefix('js/l/').sort('Key', 'Descend').keys());
  say('count', await c.getAll().prefix('js/l/').count());
  const t = await c.if('js/a', 'Value', '==', '1').then(c.put('js/a').value('2')).else(c.get('js/a')).commit();
  say('transaction', t.succeeded);
  say('previous', (await c.put('js/a').value('3').getPrevious()).value.toString());
  const lease = c.lease(60);
  await lease.put('js/leased').value('x');
  say('leased', await c.get('js/leased').string());
  await lease.revoke();
  say('after revoke', await c.get('js/leased').string());
  const w = await c.watch().prefix('js/w/').create();
  const seen = [];
  const done = new Promise((resolve) => {
    const add = (kind) => (kv) => { seen.push([kind, kv.key.toString(), kv.value.toString()]); if (seen.length === 3) resolve(); };
    w.on('put', add('put'));
    w.on('delete', add('delete'));
  });
  await c.put('js/w/1').value('one');
  await c.put('js/w/2').value('two');
  await c.delete().key('js/w/1');
  await done;
  say('events', seen);
  await w.cancel();
  const lock = c.lock('js/lock');
  await lock.acquire();
  say('second lock', await c.lock('js/lock').acquire().then(() => 'taken', (e) => e.constructor.name));
  await lock.release();
  const election = c.election('js/election');
  const campaign = election.campaign('me');
  await new Promise((resolve, reject) => { campaign.on('elected', resolve); campaign.on('error', reject); });
  say('leader', await election.leader());
  await campaign.resign();
  say('leader after', (await election.leader()) || null);
  say('stm', await c.stm().transact(async (tx) => { const v = await tx.get('js/a'); await tx.put('js/a').value(v + '!'); return v; }));
  say('after stm', await c.get('js/a').string());
  say('delete', (await c.delete().prefix('js/')).deleted);
  try { await c.put('').value('x'); say('empty key', 'no error'); } catch (e) { say('empty key', e.constructor.name); }
  c.close();
})().catch((e) => { console.log('failed:', e.message); process.exit(1); });
