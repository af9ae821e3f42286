// Loaded before each server on Node: it serves loopback alone, and ends when its standard input does.
'use strict'

const net = require('net')

const HOST = '127.0.0.1'
const listen = net.Server.prototype.listen

// kinesis-local has no setting for the address and would listen on every interface.
net.Server.prototype.listen = function (first, ...rest) {
  if (first !== null && typeof first === 'object' && first.port !== undefined) {
    return listen.call(this, { ...first, host: HOST }, ...rest)
  }
  if (typeof rest[0] === 'string') rest.shift()
  return listen.call(this, first, HOST, ...rest)
}

if (process.env.SERVERS_LIFELINE === 'stdin') {
  process.stdin.on('end', () => process.exit(0))
  process.stdin.on('error', () => process.exit(0))
  process.stdin.resume()
}
