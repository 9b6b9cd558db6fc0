// Snowflake ids under the number that `allocator worker run` leased: go run ids.go COUNT
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

var last, sequence = time.Now().UnixMilli(), int64(4095) // begin with the next millisecond

// Of one goroutine; others need a sync.Mutex.
func next(worker int64) int64 {
	now := time.Now().UnixMilli()
	if now < last {
		panic(fmt.Sprintf("the clock went back by %d ms", last-now))
	}
	if sequence++; now > last || sequence > 4095 {
		for now <= last {
			now = time.Now().UnixMilli()
		}
		sequence = 0
	}
	last = now
	return (now-1288834974657)<<22 | worker<<12 | sequence
}

func main() {
	worker, err := strconv.ParseInt(os.Getenv("WORKER_ID"), 10, 64)
	if err != nil {
		panic(err)
	}
	for count, _ := strconv.Atoi(os.Args[1]); count > 0; count-- {
		fmt.Println(next(worker))
	}
}
