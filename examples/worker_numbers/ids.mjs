// Snowflake ids under the number that `allocator worker run` leased: node ids.mjs COUNT
const WORKER = BigInt(process.env.WORKER_ID)
let last = Date.now(), sequence = 4095  // begin with the next millisecond

function next() {
  let now = Date.now()
  if (now < last) throw new Error(`the clock went back by ${last - now} ms`)
  if (now === last && ++sequence > 4095) while (now <= last) now = Date.now()
  if (now > last) sequence = 0
  last = now
  return BigInt(now) - 1288834974657n << 22n | WORKER << 12n | BigInt(sequence)
}

for (let n = Number(process.argv[2]); n > 0; n--) console.log(String(next()))
