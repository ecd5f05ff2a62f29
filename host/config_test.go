package host

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"
)

func validConfig() Config {
	return Config{ID: 1, Dir: "data", Peers: map[uint64]string{1: "a:1", 2: "b:1", 3: "c:1"}}
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
		{"millrace: Config.Peers is empty; list the addresses of all voters, this host's included", func(c *Config) { c.Peers = nil }},
		{"millrace: Config.Peers has no entry for this host, id 9", func(c *Config) { c.ID = 9 }},
		{"millrace: Config.Peers names host 0, which is a reserved id", func(c *Config) { c.Peers[0] = "d:1" }},
		{"millrace: Config.Peers names host 18446744073709551615, which is a reserved id", func(c *Config) { c.Peers[math.MaxUint64] = "d:1" }},
		{"millrace: Config.HeartbeatInterval is 1ns, want at least 1ms", func(c *Config) { c.HeartbeatInterval = 1 }},
		{"millrace: Config.HeartbeatInterval is -1s, want at least 1ms", func(c *Config) { c.HeartbeatInterval = -time.Second }},
		{"millrace: Config.ElectionTimeout is 150ms, want at least two heartbeat intervals (200ms)", func(c *Config) { c.ElectionTimeout = 150 * time.Millisecond }},
		{"millrace: Config.ElectionTimeout is 2562047h47m16.854775807s, want at most 24h0m0s", func(c *Config) { c.ElectionTimeout = math.MaxInt64 }},
		{"millrace: Config.HeartbeatInterval is 2562047h47m16.854775807s, want at most 24h0m0s", func(c *Config) { c.HeartbeatInterval = math.MaxInt64 }},
		{"millrace: Config.MaxAppendBytes is -1, want 1 to 33554432", func(c *Config) { c.MaxAppendBytes = -1 }},
		{"millrace: Config.MaxAppendBytes is 33554433, want 1 to 33554432", func(c *Config) { c.MaxAppendBytes = 32<<20 + 1 }},
		{"millrace: Config.MaxCommandBytes is -1, want 1 to 67107840: a command must fit into one frame between hosts", func(c *Config) { c.MaxCommandBytes = -1 }},
		{"millrace: Config.MaxCommandBytes is 67107841, want 1 to 67107840: a command must fit into one frame between hosts", func(c *Config) { c.MaxCommandBytes = 67107841 }},
		{"millrace: Config.MaxProposalBytes is 5, want at least MaxCommandBytes (8388608)", func(c *Config) { c.MaxProposalBytes = 5 }},
		{"millrace: other hosts would refuse Config.Peers: transport: bad introduction: the address \"a\\nb\" of host 2 has unprintable characters", func(c *Config) { c.Peers[2] = "a\nb" }},
		{"millrace: other hosts would refuse Config.Peers: transport: bad introduction: the founding list of 3 hosts takes more than 16384 bytes, the most that hosts exchange; shorten the addresses", func(c *Config) { c.Peers[2] = strings.Repeat("b", 17<<10) }},
		{"millrace: Config.MaxInboxBytes is -3, want at least MaxCommandBytes (8388608)", func(c *Config) { c.MaxInboxBytes = -3 }},
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
	for _, change := range []func(*Config){
		func(c *Config) { c.MaxAppendBytes = 32 << 20 },
		func(c *Config) { c.MaxAppendBytes = 1 },
		func(c *Config) { c.MaxCommandBytes = maxCommandBytes },
		func(c *Config) { c.MaxCommandBytes, c.MaxProposalBytes, c.MaxInboxBytes = 1, 1, 1 },
		func(c *Config) { c.HeartbeatInterval, c.ElectionTimeout = time.Millisecond, 2*time.Millisecond },
		func(c *Config) { c.HeartbeatInterval, c.ElectionTimeout = time.Millisecond, 24*time.Hour },
		func(c *Config) { c.HeartbeatInterval, c.ElectionTimeout = 100*time.Millisecond, 299*time.Millisecond },
	} {
		l := &testHost{manual: &manualEnv{}, out: &recordingTransport{}}
		c := validConfig()
		c.Dir = t.TempDir()
		c.SegmentBytes = 4 << 10
		change(&c)
		h, err := Open(c, &commands{}, WithEnv(l.manual.env()), WithTransport(l.out), WithLogger(quiet))
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if err := h.Close(context.Background()); err != nil || !l.out.closed {
			t.Error(err)
		}
	}
}

func TestOpenNeedsAStateMachine(t *testing.T) {
	if _, err := Open(validConfig(), nil); err == nil || !strings.Contains(err.Error(), "StateMachine") {
		t.Error(err)
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
