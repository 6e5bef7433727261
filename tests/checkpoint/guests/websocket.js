// SPDX-License-Identifier: Apache-2.0
// Timers, and a WebSocket (RFC 6455, text frames alone) with both its ends here: the server sends a tick all the time and remembers the words that come.
const crypto = require('crypto'), http = require('http'), readline = require('readline');

function frame(text, masked) {
  const data = Buffer.from(text);
  const head = data.length < 126 ? Buffer.from([0x81, data.length]) : Buffer.from([0x81, 126, data.length >> 8, data.length & 255]);
  if (!masked) return Buffer.concat([head, data]);
  const key = crypto.randomBytes(4);
  head[1] |= 0x80;
  return Buffer.concat([head, key, data.map((byte, i) => byte ^ key[i % 4])]);
}

function onText(socket, take) {
  let rest = Buffer.alloc(0);
  socket.on('data', (more) => {
    rest = Buffer.concat([rest, more]);
    for (;;) {
      if (rest.length < 2) return;
      if (rest[0] !== 0x81) throw new Error(`not a frame: ${rest[0]}`);
      const long = (rest[1] & 127) === 126, masked = rest[1] >> 7, at = 2 + 2 * long + 4 * masked;
      if (rest.length < at) return;
      const length = long ? rest.readUInt16BE(2) : rest[1] & 127;
      if (rest.length < at + length) return;
      const key = rest.subarray(at - 4, at), data = rest.subarray(at, at + length);
      rest = rest.subarray(at + length);
      take(String(masked ? data.map((byte, i) => byte ^ key[i % 4]) : data));
    }
  });
}

const accept = (key) => crypto.createHash('sha1').update(key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
const words = [];
const server = http.createServer().on('upgrade', (request, socket) => {
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
    `Sec-WebSocket-Accept: ${accept(request.headers['sec-websocket-key'])}\r\n\r\n`);
  setInterval(() => socket.write(frame('tick')), 5);
  onText(socket, (word) => { words.push(word); socket.write(frame(words.join(' '))); });
});

let ticks = 0, timers = 0;
setInterval(() => { timers++; }, 5);

function whenAllGoOn(then) {
  const before = [ticks, timers];
  const look = () => ticks > before[0] && timers > before[1] ? then() : setTimeout(look, 5);
  look();
}

server.listen(0, '127.0.0.1', () => {
  const key = crypto.randomBytes(16).toString('base64');
  const headers = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': 13, 'Sec-WebSocket-Key': key };
  http.get({ port: server.address().port, host: '127.0.0.1', headers }).on('upgrade', (answer, socket) => {
    if (answer.headers['sec-websocket-accept'] !== accept(key)) throw new Error('not accepted');
    onText(socket, (text) => text === 'tick' ? ticks++ : console.log(text));
    readline.createInterface({ input: process.stdin }).on('line', (word) => whenAllGoOn(() => socket.write(frame(word, true))));
    whenAllGoOn(() => console.log('ready'));
  });
});
