package snapshots

import (
	"math"
	"testing"
)

func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		what           string
		policy         Policy
		last           *Published
		interval, kept int64
	}{
		{what: "the default, at first", interval: 64 << 20},
		{what: "a small snapshot", last: &Published{Bytes: 1}, interval: 64 << 20, kept: 1 << 20},
		{what: "a large snapshot", last: &Published{Bytes: 1 << 30}, interval: 4 << 30, kept: 1 << 30},
		{what: "the largest", last: &Published{Bytes: math.MaxInt64}, interval: math.MaxInt64 - 3, kept: math.MaxInt64},
		{what: "a short log", policy: Policy{LogBytes: 1000}, last: &Published{Bytes: 10}, interval: 1000, kept: 250},
		{what: "a log that keeps nothing", policy: Policy{LogBytes: 1000, KeepBytes: 1}, last: &Published{Bytes: 1 << 20}, interval: 1000, kept: 1},
		{what: "a large snapshot with a bound", policy: Policy{MaxLogBytes: 256 << 20}, last: &Published{Bytes: 1 << 30}, interval: 256 << 20, kept: 256 << 20},
		{what: "a small snapshot with a bound", policy: Policy{MaxLogBytes: 256 << 20}, last: &Published{Bytes: 1 << 10}, interval: 64 << 20, kept: 1 << 20},
	} {
		if have := c.policy.Interval(c.last); have != c.interval {
			t.Errorf("%s: the next snapshot is due after %d bytes, want %d", c.what, have, c.interval)
		}
		if c.last == nil {
			continue
		}
		if have := c.policy.Kept(c.last); have != c.kept {
			t.Errorf("%s: %d bytes stay behind the snapshot, want %d", c.what, have, c.kept)
		}
	}
}
