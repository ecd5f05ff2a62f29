package service

import (
	"strings"
	"testing"
	"time"
)

func TestMedians(t *testing.T) {
	m := median([]Point{{Ops: 3, Mean: 5, Failures: 1, FirstFail: "x"}, {Ops: 1, Mean: 1}, {Ops: 2, Mean: 9}})
	if m.Ops != 2 || m.Mean != 5 || m.Failures != 1 || m.FirstFail != "x" {
		t.Errorf("%+v", m)
	}
	if m := median([]Point{{Ops: 1}, {Ops: 2}}); m.Ops != 1.5 {
		t.Errorf("%+v", m)
	}
}

// The table has a ratio where both systems have the load, names what is missing, and reports failures.
func TestTable(t *testing.T) {
	put, get := Load{Kind: Put, Clients: 16}, Load{Kind: Get, Clients: 16}
	r := Report{Plan: Plan{Systems: []System{{Name: "etcd"}, {Name: "millrace"}}, Missing: []string{"a third: not there"}, Members: 3, Rounds: 1, Duration: time.Second}, Partial: true,
		Rows: []Row{
			{Load: put, System: "etcd", Point: Point{Ops: 100, Mean: 10 * time.Millisecond, P99: time.Second, CPU: 200, Memory: 4 << 20}},
			{Load: put, System: "millrace", Point: Point{Ops: 250, Mean: 4 * time.Millisecond, P99: time.Second, CPU: 100, Memory: 1 << 20}},
			{Load: get, System: "millrace", Point: Point{Ops: 7, Failures: 3, FirstFail: "too late"}},
		}}
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2.50    0.40   1.00   0.50   0.25", "millrace under get, 16: 3 operations failed; the first: too late", "not measured: a third: not there", "cut short", "all members in turn"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &b)
		}
	}
}
