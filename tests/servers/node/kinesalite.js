// kinesalite on the port that the first argument names; its own command has no setting for the address.
'use strict'

const kinesalite = require('./node_modules/kinesalite')

const times = { createStreamMs: 5, deleteStreamMs: 5, updateStreamMs: 5 }
kinesalite({ ...times, shardLimit: 1000 }).listen(Number(process.argv[2]), '127.0.0.1')
