package host

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/feed"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/vfs"
)

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, c.Members[c.ID])
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 100*time.Millisecond)
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, 10*c.HeartbeatInterval)
	c.StallTimeout = cmp.Or(c.StallTimeout, min(2*c.ElectionTimeout, maxElection))
	c.MemoryBytes = cmp.Or(c.MemoryBytes, 256<<20)
	c.LogCacheBytes = cmp.Or(c.LogCacheBytes, c.shareOf(logCacheShare))
	c.SnapshotBytesPerSecond = cmp.Or(c.SnapshotBytesPerSecond, 64<<20)
	c.ObjectBytesPerSecond = cmp.Or(c.ObjectBytesPerSecond, 1<<30)
	c.MaxGroups = cmp.Or(c.MaxGroups, 100_000)
	return c
}

// Validate reports the first invalid setting, in a sentence. Defaults count as set. The transport decides
// which addresses are valid: Open checks the addresses that it gives to TCP, and WithTransport takes any.
// Open checks the files of TLS, too.
func (c Config) Validate() error {
	if _, err := c.parseJoinTokens(); err != nil {
		return err
	}
	c = c.withDefaults()
	switch {
	case c.ID == raft.None || c.ID == raft.LocalAppendThread || c.ID == raft.LocalApplyThread:
		return fmt.Errorf("millrace: Config.ID %d is reserved; give each host a different id, starting at 1", c.ID)
	case c.Dir == "":
		return errors.New("millrace: Config.Dir is empty; each host needs its own directory")
	case len(c.Members) == 0:
		return errors.New("millrace: Config.Members is empty; list the addresses of all hosts, this one's included")
	case !has(c.Members, c.ID):
		return fmt.Errorf("millrace: Config.Members has no entry for this host, id %d; list the addresses of all hosts, this one's included", c.ID)
	case c.Joins && c.Cluster == 0:
		return errors.New("millrace: Config.Joins is set and Config.Cluster is 0; set it to the number of the cluster, which Host.Cluster tells on its hosts")
	case c.TLS.validate() != nil:
		return c.TLS.validate()
	case c.HeartbeatInterval < minHeartbeat:
		return fmt.Errorf("millrace: Config.HeartbeatInterval is %v, want at least %v", c.HeartbeatInterval, minHeartbeat)
	case c.HeartbeatInterval > maxElection:
		return fmt.Errorf("millrace: Config.HeartbeatInterval is %v, want at most %v", c.HeartbeatInterval, maxElection)
	case c.ElectionTimeout > maxElection:
		return fmt.Errorf("millrace: Config.ElectionTimeout is %v, want at most %v", c.ElectionTimeout, maxElection)
	case c.ElectionTimeout < 2*c.HeartbeatInterval:
		return fmt.Errorf("millrace: Config.ElectionTimeout is %v, want at least two heartbeat intervals (%v)", c.ElectionTimeout, 2*c.HeartbeatInterval)
	case c.StallTimeout < c.ElectionTimeout || c.StallTimeout > maxElection:
		return fmt.Errorf("millrace: Config.StallTimeout is %v, want at least the election timeout (%v) and at most %v", c.StallTimeout, c.ElectionTimeout, maxElection)
	case c.MemoryBytes < minMemoryBytes:
		return fmt.Errorf("millrace: Config.MemoryBytes is %d, want at least %d", c.MemoryBytes, minMemoryBytes)
	case c.MemoryBytes > maxMemoryBytes:
		return fmt.Errorf("millrace: Config.MemoryBytes is %d, want at most %d", c.MemoryBytes, int64(maxMemoryBytes))
	case c.LogCacheBytes > maxMemoryBytes:
		return fmt.Errorf("millrace: Config.LogCacheBytes is %d, want at most %d", c.LogCacheBytes, int64(maxMemoryBytes))
	case c.SnapshotBytesPerSecond < bulk.BlockBytes || c.SnapshotBytesPerSecond > maxMemoryBytes:
		return fmt.Errorf("millrace: Config.SnapshotBytesPerSecond is %d, want %d to %d", c.SnapshotBytesPerSecond, bulk.BlockBytes, int64(maxMemoryBytes))
	case c.ObjectBytesPerSecond < bulk.BlockBytes || c.ObjectBytesPerSecond > maxMemoryBytes:
		return fmt.Errorf("millrace: Config.ObjectBytesPerSecond is %d, want %d to %d", c.ObjectBytesPerSecond, bulk.BlockBytes, int64(maxMemoryBytes))
	case placement.RejectZone(c.Zone) != nil:
		return fmt.Errorf("millrace: Config.Zone is %.80q: %w", c.Zone, placement.RejectZone(c.Zone))
	case c.FlightRecorder.validate() != nil:
		return c.FlightRecorder.validate()
	case c.MaxGroups < 1:
		return fmt.Errorf("millrace: Config.MaxGroups is %d, want at least 1", c.MaxGroups)
	}
	for id := range c.Members {
		if id == raft.None || id == raft.LocalAppendThread || id == raft.LocalApplyThread {
			return fmt.Errorf("millrace: Config.Members names host %d, which is a reserved id", id)
		}
	}
	for _, id := range sortedIDs(c.ClientAddrs) {
		switch addr := c.ClientAddrs[id]; {
		case !has(c.Members, id):
			return fmt.Errorf("millrace: Config.ClientAddrs names host %d, which is not in Config.Members", id)
		case len(addr) > maxClientAddrBytes:
			return fmt.Errorf("millrace: Config.ClientAddrs gives host %d an address of %d bytes, want at most %d", id, len(addr), maxClientAddrBytes)
		}
	}
	if err := c.directory(false).Founding().Introduction(0, 0, strings.Repeat("x", identity.MaxAddrBytes)).Validate(); err != nil {
		return fmt.Errorf("millrace: other hosts would refuse Config.Members: %w", err)
	}
	return nil
}

// maxClientAddrBytes bounds an address for clients, which may be a URL.
const maxClientAddrBytes = 1 << 10

// validateAddresses reports an address that TCP cannot use, in a sentence that names the setting.
func (c Config) validateAddresses() error {
	c = c.withDefaults()
	owner := map[string]uint64{}
	for _, id := range sortedIDs(c.Members) {
		addr := c.Members[id]
		host, port, err := splitAddr(addr)
		endpoint := fmt.Sprintf("%s %d", strings.ToLower(host), port)
		switch other, taken := owner[endpoint]; {
		case err != nil:
			return fmt.Errorf("millrace: Config.Members gives host %d the address %.80q: %w", id, addr, err)
		case len(c.Members) == 1: // no host dials it
		case host == "" || net.ParseIP(host).IsUnspecified():
			return fmt.Errorf("millrace: Config.Members gives host %d the address %q, which other hosts cannot dial; name a host in Config.Members, and the address to listen on in Config.Listen", id, addr)
		case port == 0:
			return fmt.Errorf("millrace: Config.Members gives host %d the address %q, and other hosts cannot dial port 0; name the port on which it listens", id, addr)
		case taken:
			return fmt.Errorf("millrace: Config.Members gives hosts %d and %d the same address %q; each host needs its own", other, id, addr)
		}
		owner[endpoint] = id
	}
	if _, _, err := splitAddr(c.Listen); err != nil {
		return fmt.Errorf("millrace: Config.Listen is %.80q: %w", c.Listen, err)
	}
	return nil
}

func (g GroupConfig) withDefaults(c Config) GroupConfig {
	if len(g.Members) == 0 {
		g.Members = sortedIDs(c.Members)
	}
	g.Members = slices.Clone(g.Members)
	slices.Sort(g.Members)
	g.MaxAppendBytes = cmp.Or(g.MaxAppendBytes, min(1<<20, c.largestAppend()))
	g.PublicationBytes = cmp.Or(g.PublicationBytes, 16<<20)
	g.MaxLagBytes = cmp.Or(g.MaxLagBytes, c.MemoryBytes)
	g.MaxCommandBytes = cmp.Or(g.MaxCommandBytes, min(8<<20, c.largestCommand()))
	return g
}

// Validate reports the first setting that OpenGroup would refuse on a host with this configuration.
func (g GroupConfig) Validate(c Config) error {
	c = c.withDefaults()
	return g.withDefaults(c).validate(c)
}

// validate is Validate. Both configurations have their defaults.
func (g GroupConfig) validate(c Config) error {
	switch most := c.largestCommand(); {
	case g.ID == 0:
		return errors.New("millrace: a group has the ID 0; number the groups of a cluster from 1")
	case len(slices.Compact(slices.Clone(g.Members))) < len(g.Members):
		return fmt.Errorf("millrace: Members of group %d is %v, which names a host twice", g.ID, g.Members)
	case g.MaxAppendBytes < 1 || g.MaxAppendBytes > c.largestAppend():
		return fmt.Errorf("millrace: MaxAppendBytes of group %d is %d, want 1 to %d; an append must fit into half of a queue to a peer, and of the share of Config.MemoryBytes (%d) for messages", g.ID, g.MaxAppendBytes, c.largestAppend(), c.MemoryBytes)
	case g.PublicationBytes < 1 || g.PublicationBytes > feed.MaxBytes:
		return fmt.Errorf("millrace: PublicationBytes of group %d is %d, want 1 to %d", g.ID, g.PublicationBytes, feed.MaxBytes)
	case g.MaxCommandBytes < 1 || g.MaxCommandBytes > most:
		return fmt.Errorf("millrace: MaxCommandBytes of group %d is %d, want 1 to %d; a command must fit into a frame between hosts, and into a quarter of a share of Config.MemoryBytes (%d)", g.ID, g.MaxCommandBytes, most, c.MemoryBytes)
	}
	if err := g.Snapshots.validate(g.ID, c); err != nil {
		return err
	}
	if err := g.Placement.Validate(); err != nil {
		return err
	}
	for _, id := range g.Members {
		if !has(c.Members, id) {
			return fmt.Errorf("millrace: Members of group %d names host %d, which is not in Config.Members; give its address there, or leave it out", g.ID, id)
		}
	}
	return nil
}

// minMaxLogBytes is how much the log grows between two snapshots in any case.
const minMaxLogBytes = 64 << 20

// validate says what is wrong with a policy, or returns nil.
func (p SnapshotPolicy) validate(group uint64, c Config) error {
	switch {
	case p.LogBytes < 0:
		return fmt.Errorf("millrace: SnapshotPolicy.LogBytes of group %d is %d, want at least 0, which stands for the default", group, p.LogBytes)
	case p.KeepBytes < 0:
		return fmt.Errorf("millrace: SnapshotPolicy.KeepBytes of group %d is %d, want at least 0, which stands for the default", group, p.KeepBytes)
	case p.MaxLogBytes != 0 && p.MaxLogBytes < minMaxLogBytes:
		return fmt.Errorf("millrace: SnapshotPolicy.MaxLogBytes of group %d is %d, want 0 or at least %d; for less, set LogBytes and KeepBytes", group, p.MaxLogBytes, minMaxLogBytes)
	case p.Every != 0 && (p.Every < c.HeartbeatInterval || p.Every > maxSnapshotEvery):
		return fmt.Errorf("millrace: SnapshotPolicy.Every of group %d is %v, want 0, or %v (a heartbeat interval) to %v", group, p.Every, c.HeartbeatInterval, maxSnapshotEvery)
	}
	return nil
}

// parseJoinTokens reads the tokens of the configuration, and completes it with what they say.
func (c *Config) parseJoinTokens() (plans.Tokens, error) {
	t, cluster, err := plans.ParseTokens(c.JoinTokens, c.Cluster)
	if err == nil && len(t) > 0 {
		c.Cluster, c.Joins = cluster, true
	}
	return t, err
}

// rejectTokens says why the tokens cannot be used as this host is configured, or returns nil.
func (c Config) rejectTokens(t plans.Tokens) error {
	for i, j := range t {
		switch pinned := j.CA != [32]byte{}; {
		case c.TLS == nil && pinned:
			return fmt.Errorf("millrace: join token %d is of a cluster that uses TLS, and Config.TLS is not set; give this host a certificate (millrace cert)", i+1)
		case c.TLS != nil && !pinned:
			return fmt.Errorf("millrace: join token %d is of a cluster without TLS, and Config.TLS is set; leave it out, or make the token on a member with TLS", i+1)
		case c.TLS != nil:
			found, err := c.TLS.load()
			if err != nil {
				return fmt.Errorf("millrace: Config.TLS of host %d: %w", c.ID, err)
			}
			if !found.Trusts(j.CA) {
				return fmt.Errorf("millrace: join token %d is of a cluster whose CA has the key %x, and Config.TLS trusts %s; the CA file is that of another cluster, or the token was made before the CA was replaced; use the CA of the cluster, or make another token", i+1, j.CA[:8], found.RootsText())
			}
		}
		if addr, is := c.exposed(); is && c.TLS == nil {
			return fmt.Errorf("millrace: join token %d cannot be used without TLS, because %s is not on this machine: who listens there could join in place of this host; set Config.TLS", i+1, addr)
		}
	}
	return nil
}

// dropSpent leaves out tokens that cannot be used as this host is configured (rejected says why), if they
// have done their work. That is so if the directory has started in the cluster of the tokens. A token may
// stay set for years, while a cluster gets TLS, or replaces its CA. Otherwise dropSpent returns rejected.
// given is the configuration without what the tokens say.
func (c Config) dropSpent(given Config, fsys vfs.FS, rejected error) (Config, error) {
	have, found, err := identity.Read(fsys, c.Dir)
	if err != nil || !found || have.Cluster != c.Cluster {
		return c, rejected
	}
	if started, err := identity.HasStarted(fsys, identity.LogDir(c.Dir)); err != nil || !started {
		return c, errors.Join(rejected, err)
	}
	c.Joins = given.Joins
	return c, nil
}

func (f FlightRecorder) validate() error {
	switch {
	case !f.Data.Valid():
		return fmt.Errorf("millrace: Config.FlightRecorder.Data is %d, want flight.Lengths, flight.Hashes or flight.Payloads", f.Data)
	case f.Bytes == 0 && f.Data != flight.Lengths:
		return fmt.Errorf("millrace: Config.FlightRecorder.Data is set to %v, and Bytes is 0, which records nothing; set Bytes, for instance to 67108864", f.Data)
	case f.Bytes != 0 && (f.Bytes < flight.MinBytes || f.Bytes > maxMemoryBytes):
		return fmt.Errorf("millrace: Config.FlightRecorder.Bytes is %d, want 0 (off) or %d to %d", f.Bytes, flight.MinBytes, int64(maxMemoryBytes))
	}
	return nil
}

// validate reports a setting that Open would refuse without looking at a file.
func (s *TLS) validate() error {
	if s == nil {
		return nil
	}
	files := []struct{ name, value string }{{"CertFile", s.CertFile}, {"KeyFile", s.KeyFile}, {"CAFile", s.CAFile}}
	for _, f := range files {
		switch {
		case s.Source != nil && f.value != "":
			return fmt.Errorf("millrace: Config.TLS has a Source and names a file in %s; want one of them", f.name)
		case s.Source == nil && f.value == "":
			return fmt.Errorf("millrace: Config.TLS.%s is empty; TLS needs CertFile, KeyFile and CAFile (millrace cert makes them), or leave Config.TLS out", f.name)
		}
	}
	return nil
}
