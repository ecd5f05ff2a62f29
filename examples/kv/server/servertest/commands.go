// Package servertest has what the tests of all key-value stores have in common.
package servertest

import (
	"bytes"
	"math"
	"time"

	"github.com/millrace/millrace/examples/kv/server"
)

// Commands returns commands that reach every branch of a store and depend on one another.
func Commands() (commands []server.Command) {
	for i := range 40 {
		key, value := string(rune('a'+i%5)), bytes.Repeat([]byte("v"), i)
		commands = append(commands,
			server.Command{Op: server.Put, Key: key, Value: value},
			server.Command{Op: server.Put, When: server.IfAbsent, Key: key + key, Value: value},
			server.Command{Op: server.Put, When: server.IfVersion, Version: uint64(i), Key: key, Value: value},
			server.Command{Op: server.Add, Key: "n", Delta: int64(i) - 7, Value: []byte{}},
			server.Command{Op: server.Add, Key: key, Delta: math.MaxInt64, Value: []byte{}},
			server.Command{Op: server.Delete, Key: key + key, Value: []byte{}},
			server.Command{Op: server.PutFor, Key: "t" + key, Value: value, TTL: time.Duration(1+i%3) * time.Second},
			server.Command{Op: server.Tick, Value: []byte{}},
			server.Command{Op: server.Delete, When: server.IfVersion, Version: uint64(3 * i), Key: "n", Value: []byte{}},
		)
	}
	return commands
}
