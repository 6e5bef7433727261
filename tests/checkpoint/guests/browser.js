// SPDX-License-Identifier: Apache-2.0
// A browser that is driven from outside (packages of others), and the server of its page. The page remembers the words that it is told: in its memory, by a WebSocket to the server,
// in local storage and in a worker with a timer. argv: chromium or firefox.
const http = require('http'), readline = require('readline'), { WebSocketServer } = require('ws');

const PAGE = `<!DOCTYPE html><form onsubmit="tell(word.value); word.value = ''; return false"><input id="word"><button id="go">tell</button></form><p id="said"></p><canvas id="drawn"></canvas><script>
const words = [], heard = [], waiting = new Map(), word = document.getElementById('word');
const ws = new WebSocket('ws://' + location.host);
const worker = new Worker(URL.createObjectURL(new Blob(["let all = [], ticks = 0; setInterval(() => ticks++, 5); onmessage = m => { const before = ticks; all.push(m.data); " +
  "const look = () => ticks > before ? postMessage(all.join(' ')) : setTimeout(look, 5); look() }"])));
const once = (what) => new Promise((done) => { what.onmessage = (m) => done(m.data) });
async function tell(word) {
  words.push(word);
  const answers = Promise.all([once(ws), once(worker)]);
  ws.send(word);
  worker.postMessage(word);
  localStorage.setItem('words', ((localStorage.getItem('words') || '') + ' ' + word).trim());
  const drawn = document.getElementById('drawn').getContext('2d');
  drawn.fillStyle = '#123456';
  drawn.fillRect(0, 0, 9, 9);
  const fetched = await (await fetch('/words')).text();
  const all = [words.join(' '), ...await answers, localStorage.getItem('words'), fetched], [pixel] = drawn.getImageData(1, 1, 1, 1).data;
  await new Promise(requestAnimationFrame);
  document.getElementById('said').textContent = all.every((one) => one === all[0]) && pixel === 0x12 ? words.join(' ') : JSON.stringify([all, pixel]);
}
</script>`;

const told = [];
const server = http.createServer((request, answer) => {
  if (request.url === '/words') return answer.end(told.join(' '));
  answer.setHeader('Content-Type', 'text/html');
  return answer.end(PAGE);
});
new WebSocketServer({ server }).on('connection', (socket) => socket.on('message', (word) => { told.push(String(word)); socket.send(told.join(' ')); }));

// What playwright and puppeteer call alike.
async function open(kind) {
  if (kind === 'chromium') {
    return require('playwright-core').chromium.launch({ executablePath: '/usr/bin/chromium', chromiumSandbox: false });
  }
  return require('puppeteer-core').launch({ browser: 'firefox', executablePath: '/usr/bin/firefox-esr', headless: true, protocolTimeout: 60000 });
}

server.listen(0, '127.0.0.1', async () => {
  const address = `http://127.0.0.1:${server.address().port}/`;
  const browser = await open(process.argv[2]);
  const page = await browser.newPage();
  let words = '';
  await page.goto(address);
  console.log('ready');
  for await (const word of readline.createInterface({ input: process.stdin })) {
    if (word === 'end') {
      await browser.close();
      console.log('ended');
      process.exit(0);
    }
    words = `${words} ${word}`.trim();
    await page.type('#word', word);
    await page.click('#go');
    await page.waitForFunction("document.getElementById('said').textContent.endsWith('" + word + "') || document.getElementById('said').textContent.startsWith('[')");
    const said = await page.evaluate("document.getElementById('said').textContent");
    // a process of its own, made after all that
    const other = await browser.newPage();
    await other.goto(address);
    const fresh = await other.evaluate('1 + words.length + words.join().length');
    await other.close();
    const picture = await page.screenshot();
    console.log(fresh === 1 && picture.length > 500 ? said : `a new page says ${fresh}, a picture has ${picture.length} bytes`);
  }
});
