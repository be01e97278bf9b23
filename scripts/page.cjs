// What scripts/page.sh asks of the status page, in Chromium.
// usage: node page.cjs URL ROOM SHOTS   (ROOM has what the program itself says: ls.json, du.json, gc.json)
const { chromium } = require('playwright-core');
const axe = require('axe-core');
const fs = require('fs');
const assert = require('assert');

const [url, room, shots] = process.argv.slice(2);
const said = (name) => JSON.parse(fs.readFileSync(`${room}/${name}.json`, 'utf8'));
const LIMIT_MS = 100;

// Chromium asks its maker's hosts for many things of its own.
const quiet = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];

(async () => {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: quiet });
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, bypassCSP: true });
  const page = await context.newPage();
  const foreign = [];
  page.on('request', (request) => { if (!request.url().startsWith(url)) foreign.push(request.url()); });
  const wrong = [];
  page.on('console', (message) => { if (message.type() === 'error') wrong.push(message.text()); });
  const sizes = () => page.$$eval('data', (all) => all.map((d) => Number(d.value)));
  const views = [['jobs', '/'], ['job', '/job/orders'], ['checkpoint', '/job/orders/chk-150'], ['store', '/store'], ['mount', '/mount']];
  for (const [name, path] of views) {
    // The first look finds what later ones remember.
    await page.goto(url + path);
    const times = [];
    const answers = [];
    for (let i = 0; i < 9; i++) {
      await page.goto(url + path);
      const [all, answer] = await page.evaluate(() => {
        const entry = performance.getEntriesByType('navigation')[0];
        return [entry.duration, entry.responseEnd - entry.requestStart];
      });
      times.push(all);
      answers.push(answer);
    }
    const middle = (all) => all.sort((a, b) => a - b)[4];
    const took = middle(times);
    await page.evaluate(axe.source);
    const found = await page.evaluate(() => axe.run());
    assert.deepStrictEqual(found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`), [], name);
    assert(found.passes.length > 10, `${name}: axe looked at nothing`);
    await page.screenshot({ path: `${shots}/page-${name}.png` });
    console.log(`${name}: loaded in ${took.toFixed(0)} ms [${times[0].toFixed(0)}..${times[8].toFixed(0)}], ${middle(answers).toFixed(0)} of them until the answer was here, ${found.passes.length} rules of axe hold`);
    assert(took < LIMIT_MS, `${name} took ${took} ms`);
  }
  await page.goto(`${url}/job/orders`);
  const listed = said('ls').reverse().flatMap((c) => [c.logical_bytes, c.new_bytes]);
  assert.strictEqual(listed.length, 2 * 198);
  assert.deepStrictEqual(await sizes(), listed, 'the table of a job');
  assert((await page.textContent('main')).includes('the third subtask ran out of memory'));
  await page.goto(`${url}/store`);
  const du = said('du');
  const gc = said('gc');
  const logical = du.checkpoints.reduce((sum, c) => sum + c.logical_bytes, 0);
  assert.deepStrictEqual(await sizes(), [logical, du.store_bytes, gc.doomed.bytes, gc.kept.bytes], 'the store');
  await page.goto(`${url}/job/orders/chk-150`);
  const own = du.checkpoints.find((c) => c.checkpoint === 'chk-150');
  assert.deepStrictEqual((await sizes()).slice(0, 3), [own.logical_bytes, own.new_bytes, own.unique_bytes], 'a checkpoint');
  // By links alone, without a script.
  const plain = await (await browser.newContext({ javaScriptEnabled: false })).newPage();
  await plain.goto(url);
  await plain.click('main a:text-is("orders")');
  await plain.click('main a:text-is("chk-150")');
  assert((await plain.textContent('h1')).includes('orders/chk-150'));
  assert.deepStrictEqual(foreign, [], 'something came from elsewhere');
  assert.deepStrictEqual(wrong, [], 'the browser complains');
  await browser.close();
  console.log('the page shows what the program says');
})().catch((e) => { console.error(e.message || e); process.exit(1); });
