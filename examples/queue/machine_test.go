package main

import (
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/smtest"
)

func TestMachine(t *testing.T) {
	smtest.Run(t, func() millrace.Machine[command, result] { _, m := machine(); return m },
		command{Do: enqueue, Body: "a"}, command{Do: enqueue, Body: "b"},
		command{Do: lease, TTL: 200 * time.Millisecond}, command{Do: lease, TTL: time.Hour}, command{Do: lease, TTL: time.Hour},
		command{Do: renew, ID: 2, Attempt: 1, TTL: time.Minute}, command{Do: renew, ID: 2, Attempt: 2, TTL: time.Minute},
		command{Do: ack, ID: 2, Attempt: 2}, command{Do: ack, ID: 2, Attempt: 1}, command{Do: ack, ID: 2, Attempt: 1},
		command{Do: ack, ID: 1, Attempt: 1}, command{Do: enqueue, Body: "c"}, command{Do: lease, TTL: time.Second},
	)
}
