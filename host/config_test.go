package host

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
)

func validConfig() Config {
	return Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "a:1", 2: "b:1", 3: "c:1"}}
}

// Each mistake has an error that names the setting and says what it should be.
func TestConfigValidate(t *testing.T) {
	if err := validConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		sentence string
		change   func(*Config)
	}{
		{"millrace: Config.ID 0 is reserved; give each host a different id, starting at 1", func(c *Config) { c.ID = 0 }},
		{"millrace: Config.ID 18446744073709551615 is reserved; give each host a different id, starting at 1", func(c *Config) { c.ID = math.MaxUint64 }},
		{"millrace: Config.ID 18446744073709551614 is reserved; give each host a different id, starting at 1", func(c *Config) { c.ID = math.MaxUint64 - 1 }},
		{"millrace: Config.Dir is empty; each host needs its own directory", func(c *Config) { c.Dir = "" }},
		{"millrace: Config.Members is empty; list the addresses of all hosts, this one's included", func(c *Config) { c.Members = nil }},
		{"millrace: Config.Members has no entry for this host, id 9; list the addresses of all hosts, this one's included", func(c *Config) { c.ID = 9 }},
		{"millrace: Config.Members names host 0, which is a reserved id", func(c *Config) { c.Members[0] = "d:1" }},
		{"millrace: Config.Members names host 18446744073709551615, which is a reserved id", func(c *Config) { c.Members[math.MaxUint64] = "d:1" }},
		{"millrace: Config.HeartbeatInterval is 1ns, want at least 1ms", func(c *Config) { c.HeartbeatInterval = 1 }},
		{"millrace: Config.HeartbeatInterval is -1s, want at least 1ms", func(c *Config) { c.HeartbeatInterval = -time.Second }},
		{"millrace: Config.ElectionTimeout is 150ms, want at least two heartbeat intervals (200ms)", func(c *Config) { c.ElectionTimeout = 150 * time.Millisecond }},
		{"millrace: Config.ElectionTimeout is 2562047h47m16.854775807s, want at most 24h0m0s", func(c *Config) { c.ElectionTimeout = math.MaxInt64 }},
		{"millrace: Config.HeartbeatInterval is 2562047h47m16.854775807s, want at most 24h0m0s", func(c *Config) { c.HeartbeatInterval = math.MaxInt64 }},
		{"millrace: Config.MemoryBytes is 5, want at least 65536", func(c *Config) { c.MemoryBytes = 5 }},
		{"millrace: Config.StallTimeout is 900ms, want at least the election timeout (1s) and at most 24h0m0s", func(c *Config) { c.StallTimeout = 900 * time.Millisecond }},
		{"millrace: Config.StallTimeout is 24h0m0.000000001s, want at least the election timeout (1s) and at most 24h0m0s", func(c *Config) { c.StallTimeout = 24*time.Hour + 1 }},
		{"millrace: Config.MemoryBytes is 9223372036854775807, want at most 1099511627776", func(c *Config) { c.MemoryBytes = math.MaxInt64 }},
		{"millrace: Config.LogCacheBytes is 9223372036854775807, want at most 1099511627776", func(c *Config) { c.LogCacheBytes = math.MaxInt64 }},
		{"millrace: Config.ClientAddrs names host 4, which is not in Config.Members", func(c *Config) { c.ClientAddrs = map[uint64]string{1: "x", 4: "y"} }},
		{"millrace: Config.ClientAddrs gives host 2 an address of 1025 bytes, want at most 1024", func(c *Config) { c.ClientAddrs = map[uint64]string{2: strings.Repeat("x", 1025)} }},
		{"millrace: Config.SnapshotBytesPerSecond is 65535, want 65536 to 1099511627776", func(c *Config) { c.SnapshotBytesPerSecond = 64<<10 - 1 }},
		{"millrace: Config.ObjectBytesPerSecond is -1, want 65536 to 1099511627776", func(c *Config) { c.ObjectBytesPerSecond = -1 }},
		{"millrace: Config.ObjectBytesPerSecond is 1099511627777, want 65536 to 1099511627776", func(c *Config) { c.ObjectBytesPerSecond = 1<<40 + 1 }},
		{"millrace: Config.MaxGroups is -3, want at least 1", func(c *Config) { c.MaxGroups = -3 }},
		{"millrace: other hosts would refuse Config.Members: transport: bad introduction: the address \"a\\nb\" of host 2 has unprintable characters", func(c *Config) { c.Members[2] = "a\nb" }},
		{"millrace: other hosts would refuse Config.Members: transport: bad introduction: the founding list of 3 hosts takes more than 16384 bytes, the most that hosts exchange; shorten the addresses", func(c *Config) { c.Members[2] = strings.Repeat("b", 17<<10) }},
	} {
		c := validConfig()
		row.change(&c)
		if err := c.Validate(); err == nil || err.Error() != row.sentence {
			t.Errorf("got  %v\nwant %s", err, row.sentence)
		}
	}
}

// The core and the log accept what Validate accepts.
func TestConfigLimitsOpen(t *testing.T) {
	for _, change := range []func(*Config, *GroupConfig){
		func(c *Config, g *GroupConfig) { c.MemoryBytes, g.MaxAppendBytes = 1<<40, 32<<20 },
		func(_ *Config, g *GroupConfig) { g.MaxAppendBytes = 1 },
		func(c *Config, g *GroupConfig) { c.MemoryBytes, g.MaxCommandBytes = 4<<30, maxCommandBytes },
		func(c *Config, g *GroupConfig) { c.MemoryBytes, g.MaxCommandBytes = minMemoryBytes, 3904 },
		func(c *Config, g *GroupConfig) { c.MemoryBytes, g.MaxCommandBytes = minMemoryBytes, 1 },
		func(c *Config, g *GroupConfig) { c.MemoryBytes, c.MaxGroups = minMemoryBytes, 1 },
		func(c *Config, _ *GroupConfig) {
			c.HeartbeatInterval, c.ElectionTimeout = time.Millisecond, 2*time.Millisecond
		},
		func(c *Config, _ *GroupConfig) {
			c.HeartbeatInterval, c.ElectionTimeout = time.Millisecond, 24*time.Hour
		},
		func(c *Config, _ *GroupConfig) {
			c.HeartbeatInterval, c.ElectionTimeout = 100*time.Millisecond, 299*time.Millisecond
		},
	} {
		l := &testHost{manual: &manualEnv{}, out: &recordingTransport{}}
		c := validConfig()
		c.Dir = scratch.Dir(t)
		c.SegmentBytes = 4 << 10
		group := GroupConfig{ID: theGroup}
		change(&c, &group)
		h, err := Open(t.Context(), c, WithEnv(l.manual.env()), WithTransport(l.out), WithLogger(quiet))
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if _, err := h.OpenGroup(t.Context(), group, &commands{}); err != nil {
			t.Errorf("%+v, %+v: %v", c, group, err)
		}
		if err := h.Close(context.Background()); err != nil || !l.out.closed {
			t.Error(err)
		}
	}
}

// Each mistake in a group's configuration has an error that names the setting, the group and what it should
// be, and leaves no group behind.
func TestGroupConfigValidate(t *testing.T) {
	l := openTestHost(t, 3)
	defer l.Close(t.Context())
	const most = 262144 - proposals.OverheadBytes // half of the share for messages of 4 MiB
	for _, row := range []struct {
		sentence string
		machine  statemachine.Machine
		config   GroupConfig
	}{
		{"millrace: OpenGroup needs a StateMachine for group 2", nil, GroupConfig{ID: 2}},
		{"millrace: a group has the ID 0; number the groups of a cluster from 1", l.machine, GroupConfig{}},
		{"millrace: Members of group 2 is [2 3], without this host, 1; open a new group on its founding members only, or set Joins where a member will be added later", l.machine, GroupConfig{ID: 2, Members: []uint64{3, 2}}},
		{"millrace: Members of group 2 is [1 2 2], which names a host twice", l.machine, GroupConfig{ID: 2, Members: []uint64{2, 1, 2}}},
		{"millrace: Members of group 2 names host 4, which is not in Config.Members; give its address there, or leave it out", l.machine, GroupConfig{ID: 2, Members: []uint64{1, 4}}},
		{"millrace: MaxAppendBytes of group 2 is -1, want 1 to 262144; an append must fit into half of a queue to a peer, and of the share of Config.MemoryBytes (4194304) for messages", l.machine, GroupConfig{ID: 2, MaxAppendBytes: -1}},
		{"millrace: MaxAppendBytes of group 2 is 262145, want 1 to 262144; an append must fit into half of a queue to a peer, and of the share of Config.MemoryBytes (4194304) for messages", l.machine, GroupConfig{ID: 2, MaxAppendBytes: 256<<10 + 1}},
		{fmt.Sprintf("millrace: MaxCommandBytes of group 2 is -1, want 1 to %d; a command must fit into a frame between hosts, and into a quarter of a share of Config.MemoryBytes (4194304)", most), l.machine, GroupConfig{ID: 2, MaxCommandBytes: -1}},
		{fmt.Sprintf("millrace: MaxCommandBytes of group 2 is %d, want 1 to %d; a command must fit into a frame between hosts, and into a quarter of a share of Config.MemoryBytes (4194304)", most+1, most), l.machine, GroupConfig{ID: 2, MaxCommandBytes: most + 1}},
		{"millrace: group 1 is open on this host already", l.machine, GroupConfig{ID: theGroup}},
	} {
		_, err := l.OpenGroup(t.Context(), row.config, row.machine)
		if err == nil || err.Error() != row.sentence {
			t.Errorf("got  %v\nwant %s", err, row.sentence)
		}
	}
	if open := l.Groups(); !slices.Equal(open, []uint64{theGroup}) {
		t.Errorf("groups %v are open", open)
	}
}

func TestListenDefaultsToTheOwnAddress(t *testing.T) {
	if c := validConfig().withDefaults(); c.Listen != "a:1" || c.ElectionTimeout != time.Second {
		t.Errorf("%+v", c)
	}
}

// A dead connection is given up within a few election timeouts, but not before the kernel has repeated a
// packet.
func TestStallTimeout(t *testing.T) {
	for election, want := range map[time.Duration]time.Duration{0: 3 * time.Second, 2 * time.Second: 6 * time.Second, 200 * time.Millisecond: time.Second} {
		c := Config{ElectionTimeout: election}.withDefaults()
		if have := c.stallTimeout(); have != want {
			t.Errorf("election timeout %v: %v, want %v", election, have, want)
		}
	}
}

// Open closes a transport that it was given even if another option is nil, wherever that stands.
func TestNilOptionClosesTheTransport(t *testing.T) {
	for _, first := range []bool{true, false} {
		out := &recordingTransport{}
		options := []Option{WithTransport(out), nil}
		if first {
			options[0], options[1] = options[1], options[0]
		}
		if _, err := Open(t.Context(), Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "a"}}, options...); err == nil || !out.closed {
			t.Errorf("nil comes first: %v: %v, closed %v", first, err, out.closed)
		}
	}
}
