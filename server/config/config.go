package config

import (
	"crypto/sha1"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is what a member needs to know. Load makes it of flags; a program that embeds the service may
// fill it in itself, beginning with New.
type Config struct {
	Name string
	Dir  string // of this member; it is made if missing

	HeartbeatInterval, ElectionTimeout time.Duration

	Cluster []Member // all founding members, this one included
	Token   string   // makes ids differ from those of another cluster with the same URLs

	ListenPeer      *url.URL
	AdvertisePeer   []string
	ListenClient    []*url.URL
	ListenHTTP      []*url.URL // HTTP only; ListenClient then serve gRPC only
	ListenMetrics   []*url.URL
	AdvertiseClient []string
	ReusePort       bool

	ClientTLS ClientTLS
	PeerTLS   PeerTLS

	QuotaBytes      int64 // of kept versions; 0 is none
	MaxTxnOps       int
	MaxRequestBytes int
	MaxStreams      uint32
	KeepAlive       KeepAlive
	AutoCompaction  AutoCompaction

	Gateway       bool
	CORS          []string // origins; "*" is all
	HostWhitelist []string // "*" is all

	ProgressInterval time.Duration // of watches that want progress notifications
	WarnDuration     time.Duration // of a unary request; 0 warns of none
	StopTimeout      time.Duration

	Pprof            bool
	ExtensiveMetrics bool

	LogOutputs []string
	LogLevel   string
	LogFormat  string

	Engine string // pebble or memory
	// SnapshotLogBytes is by how much the log grows between two snapshots. Twice as much stays behind a
	// snapshot, for members that are behind. 0: 64 to 128 MiB, by the size of the state.
	SnapshotLogBytes int64
	// Bytes of memory.
	HeadCacheBytes, ValueCacheBytes, BlockCacheBytes, FeedBytes, WatchBytes, RangeBytes int64
}

// Member is a founding member.
type Member struct {
	Name     string
	PeerURLs []string
}

// KeepAlive is about pings on connections of clients.
type KeepAlive struct{ MinTime, Interval, Timeout time.Duration }

// ClientTLS is the TLS of client URLs with https and unixs. The files are read again when they change.
type ClientTLS struct {
	CertFile, KeyFile, CAFile, CRLFile string
	ClientAuth                         bool
	AllowedHostnames                   []string
	CipherSuites                       []uint16
	Min, Max                           uint16
}

// PeerTLS are the files with which members prove their ids (host.TLS).
type PeerTLS struct{ CertFile, KeyFile, CAFile string }

// AutoCompaction compacts by itself: what is older than Period, or all but the latest Revisions. Both
// zero: never.
type AutoCompaction struct {
	Period    time.Duration
	Revisions int64
}

// ID returns the id of the member, as etcd draws it: from its peer URLs and the token of the cluster.
func (m Member) ID(token string) uint64 {
	urls := slices.Clone(m.PeerURLs)
	slices.Sort(urls)
	sum := sha1.Sum([]byte(strings.Join(urls, "") + token))
	return binary.BigEndian.Uint64(sum[:8])
}

// Self returns this member, and whether Cluster has it.
func (c *Config) Self() (Member, bool) {
	for _, m := range c.Cluster {
		if m.Name == c.Name {
			return m, true
		}
	}
	return Member{}, false
}

// New returns the configuration of all defaults.
func New() *Config {
	l, err := Load(nil, nil, nil)
	if err != nil {
		panic(err) // the defaults are ours
	}
	return l.Config
}

// maxRequestBytes is the largest --max-request-bytes: a command of the log is at most 8 MiB.
const maxRequestBytes = 8<<20 - 64<<10

// minSnapshotLogBytes is the smallest --snapshot-log-bytes.
const minSnapshotLogBytes = 16 << 10

// build makes the configuration of checked values.
func (l *Loaded) build() (*Config, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	c := &Config{
		Name: l.text("name"), Dir: l.text("data-dir"), Token: l.text("initial-cluster-token"),
		HeartbeatInterval: l.millis("heartbeat-interval"), ElectionTimeout: l.millis("election-timeout"),
		AdvertisePeer: l.list("initial-advertise-peer-urls"), AdvertiseClient: l.list("advertise-client-urls"),
		ReusePort:  l.bool("socket-reuse-port"),
		QuotaBytes: max(l.int("quota-backend-bytes"), 0), MaxTxnOps: int(l.int("max-txn-ops")), MaxRequestBytes: int(l.int("max-request-bytes")),
		MaxStreams: uint32(min(l.int("max-concurrent-streams"), 1<<32-1)),
		KeepAlive:  KeepAlive{MinTime: l.duration("grpc-keepalive-min-time"), Interval: l.duration("grpc-keepalive-interval"), Timeout: l.duration("grpc-keepalive-timeout")},
		Gateway:    l.bool("enable-grpc-gateway"), CORS: l.list("cors"), HostWhitelist: l.list("host-whitelist"),
		ProgressInterval: max(l.duration("watch-progress-notify-interval"), minProgressInterval),
		WarnDuration:     l.duration("warning-unary-request-duration"), StopTimeout: l.duration("stop-timeout"),
		Pprof: l.bool("enable-pprof"), ExtensiveMetrics: l.text("metrics") == "extensive",
		LogOutputs: l.list("log-outputs"), LogLevel: l.text("log-level"), LogFormat: l.text("log-format"),
		Engine: l.text("storage-engine"), HeadCacheBytes: l.int("head-cache-bytes"), ValueCacheBytes: l.int("value-cache-bytes"), BlockCacheBytes: l.int("block-cache-bytes"),
		FeedBytes: l.int("watch-feed-bytes"), WatchBytes: l.int("watch-memory-bytes"), RangeBytes: l.int("range-memory-bytes"),
		SnapshotLogBytes: l.int("snapshot-log-bytes"),
		PeerTLS:          PeerTLS{CertFile: l.text("peer-cert-file"), KeyFile: l.text("peer-key-file"), CAFile: l.text("peer-trusted-ca-file")},
	}
	if c.Dir == "" {
		c.Dir = c.Name + ".etcd"
	}
	for _, step := range []func(*Config) error{l.choices, l.addresses, l.cluster, l.tls, l.compaction} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// choices checks the flags that have a few values, and bounds.
func (l *Loaded) choices(c *Config) error {
	for name, allowed := range map[string][]string{
		"initial-cluster-state": {"new"},
		"auto-compaction-mode":  {"periodic", "revision"},
		"metrics":               {"basic", "extensive"},
		"log-level":             {"debug", "info", "warn", "error", "panic", "fatal"},
		"log-format":            {"json", "console"},
		"storage-engine":        {"pebble", "memory"},
		"tls-min-version":       {"", "TLS1.2", "TLS1.3"},
		"tls-max-version":       {"", "TLS1.2", "TLS1.3"},
	} {
		v := l.text(name)
		if name == "initial-cluster-state" && v == "existing" {
			return fmt.Errorf("%s=existing is not served yet: members do not change in this version. Start all members with \"new\"", l.where(lookup(name)))
		}
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("%s: %q is none of %s", l.where(lookup(name)), v, strings.Join(allowed, ", "))
		}
	}
	switch {
	case c.HeartbeatInterval <= 0 || c.ElectionTimeout <= 0:
		return fmt.Errorf("--heartbeat-interval and --election-timeout must be at least 1 ms, have %v and %v", c.HeartbeatInterval, c.ElectionTimeout)
	case 5*c.HeartbeatInterval > c.ElectionTimeout:
		return fmt.Errorf("--election-timeout[%v] should be at least 5 times as long as --heartbeat-interval[%v]", c.ElectionTimeout, c.HeartbeatInterval)
	case c.ElectionTimeout > 50*time.Second:
		return fmt.Errorf("--election-timeout[%v] is too long, and should be at most 50s", c.ElectionTimeout)
	case c.MaxRequestBytes > maxRequestBytes || c.MaxRequestBytes == 0:
		return fmt.Errorf("--max-request-bytes is %d, and may be from 1 to %d: a command of the log holds 8 MiB", c.MaxRequestBytes, maxRequestBytes)
	case c.SnapshotLogBytes != 0 && c.SnapshotLogBytes < minSnapshotLogBytes:
		return fmt.Errorf("--snapshot-log-bytes is %d, and must be 0 or at least %d: each snapshot flushes the state", c.SnapshotLogBytes, minSnapshotLogBytes)
	case c.MaxTxnOps == 0:
		return fmt.Errorf("--max-txn-ops is 0, and must be at least 1")
	}
	return nil
}

// addresses reads the URLs to listen on.
func (l *Loaded) addresses(c *Config) (err error) {
	peers, err := l.urls("listen-peer-urls")
	if err != nil {
		return err
	}
	if len(peers) != 1 {
		return fmt.Errorf("--listen-peer-urls has %d URLs: a member listens on one for the others", len(peers))
	}
	if c.ListenPeer = peers[0]; c.ListenPeer.Scheme != "http" && c.ListenPeer.Scheme != "https" {
		return fmt.Errorf("--listen-peer-urls: %s is neither http nor https", c.ListenPeer)
	}
	if c.ListenClient, err = l.urls("listen-client-urls"); err != nil {
		return err
	}
	if len(c.ListenClient) == 0 {
		return fmt.Errorf("--listen-client-urls is empty: clients need a URL")
	}
	if c.ListenHTTP, err = l.urls("listen-client-http-urls"); err != nil {
		return err
	}
	if c.ListenMetrics, err = l.urls("listen-metrics-urls"); err != nil {
		return err
	}
	if l.Values["advertise-client-urls"].Source == Default && l.Values["listen-client-urls"].Source != Default {
		c.AdvertiseClient = nil
		for _, u := range c.ListenClient {
			c.AdvertiseClient = append(c.AdvertiseClient, u.String())
		}
		l.warn("--advertise-client-urls is not set: clients are told the URLs of --listen-client-urls")
	}
	return nil
}

// cluster reads the founding members.
func (l *Loaded) cluster(c *Config) error {
	text := l.text("initial-cluster")
	if text == "" {
		c.Cluster = []Member{{Name: c.Name, PeerURLs: c.AdvertisePeer}}
		return nil
	}
	for _, pair := range strings.Split(text, ",") {
		name, u, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || name == "" {
			return fmt.Errorf("--initial-cluster: %q is not NAME=URL", pair)
		}
		if _, err := parseURL(u); err != nil {
			return fmt.Errorf("--initial-cluster: %w", err)
		}
		at := slices.IndexFunc(c.Cluster, func(m Member) bool { return m.Name == name })
		if at < 0 {
			c.Cluster = append(c.Cluster, Member{Name: name})
			at = len(c.Cluster) - 1
		}
		c.Cluster[at].PeerURLs = append(c.Cluster[at].PeerURLs, u)
	}
	self, ok := c.Self()
	if !ok {
		return fmt.Errorf("couldn't find local name %q in the initial cluster configuration: --initial-cluster must have all members, this one included", c.Name)
	}
	if l.Values["initial-advertise-peer-urls"].Source == Default {
		c.AdvertisePeer = self.PeerURLs
	}
	have, want := slices.Clone(c.AdvertisePeer), slices.Clone(self.PeerURLs)
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		return fmt.Errorf("--initial-cluster has %s=%s but is missing from --initial-advertise-peer-urls=%s", c.Name, strings.Join(want, ","), strings.Join(have, ","))
	}
	return nil
}

// tls reads what is about the certificates of clients and members.
func (l *Loaded) tls(c *Config) error {
	versions := map[string]uint16{"": 0, "TLS1.2": tls.VersionTLS12, "TLS1.3": tls.VersionTLS13}
	t := ClientTLS{
		CertFile: l.text("cert-file"), KeyFile: l.text("key-file"), CAFile: l.text("trusted-ca-file"), CRLFile: l.text("client-crl-file"),
		ClientAuth: l.bool("client-cert-auth"), AllowedHostnames: l.list("client-cert-allowed-hostname"),
		Min: versions[l.text("tls-min-version")], Max: versions[l.text("tls-max-version")],
	}
	if t.Max != 0 && t.Min > t.Max {
		return fmt.Errorf("min version (%s) is greater than max version (%s)", l.text("tls-min-version"), l.text("tls-max-version"))
	}
	for _, name := range l.list("cipher-suites") {
		at := slices.IndexFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return s.Name == name })
		if at < 0 {
			return fmt.Errorf("unexpected TLS cipher suite %q", name)
		}
		t.CipherSuites = append(t.CipherSuites, tls.CipherSuites()[at].ID)
	}
	if len(t.CipherSuites) > 0 && t.Min == tls.VersionTLS13 {
		return fmt.Errorf("--cipher-suites can not be set with --tls-min-version=TLS1.3: the suites of TLS 1.3 are fixed")
	}
	secure := false
	for _, u := range slices.Concat(c.ListenClient, c.ListenHTTP, c.ListenMetrics) {
		secure = secure || Secure(u)
	}
	switch {
	case secure && (t.CertFile == "" || t.KeyFile == ""):
		return fmt.Errorf("a client URL has https, and --cert-file or --key-file is missing")
	case (t.CertFile == "") != (t.KeyFile == ""):
		return fmt.Errorf("--cert-file and --key-file belong together")
	case t.ClientAuth && t.CAFile == "":
		return fmt.Errorf("--client-cert-auth needs --trusted-ca-file: the CAs that sign clients' certificates")
	case !secure && t.CertFile != "":
		l.warn("the client URLs have http, so --cert-file and --key-file are not used")
	}
	p := c.PeerTLS
	if c.ListenPeer.Scheme == "https" && (p.CertFile == "" || p.KeyFile == "" || p.CAFile == "") {
		return fmt.Errorf("the peer URL has https: --peer-cert-file, --peer-key-file and --peer-trusted-ca-file are needed, with certificates that name members (millrace cert)")
	}
	c.ClientTLS = t
	return nil
}

// compaction reads the two flags of automatic compaction.
func (l *Loaded) compaction(c *Config) error {
	retention := l.text("auto-compaction-retention")
	if retention == "0" || retention == "" {
		return nil
	}
	n, err := strconv.ParseInt(retention, 10, 64)
	if l.text("auto-compaction-mode") == "revision" {
		if err != nil || n < 0 {
			return fmt.Errorf("--auto-compaction-retention: %q is not a number of revisions", retention)
		}
		c.AutoCompaction.Revisions = n
		return nil
	}
	if c.AutoCompaction.Period = time.Duration(n) * time.Hour; err != nil {
		c.AutoCompaction.Period, err = time.ParseDuration(retention)
	}
	if err != nil || c.AutoCompaction.Period < 0 {
		return fmt.Errorf("--auto-compaction-retention: %q is neither a number of hours nor a duration", retention)
	}
	return nil
}

// CheckDir refuses a directory that etcd has written.
func CheckDir(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "member", "snap", "db")); err == nil {
		return fmt.Errorf("%s is a data directory of etcd, which this program neither reads nor changes. Give --data-dir another directory", dir)
	}
	return nil
}

// Secure reports whether a URL to listen on wants TLS.
func Secure(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "unixs" }

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "http", "https":
		if u.Path != "" && u.Path != "/" {
			return nil, fmt.Errorf("URL must not contain a path: %s", text)
		}
		if u.Port() == "" {
			return nil, fmt.Errorf(`URL address does not have the form "host:port": %s`, text)
		}
		u.Path = ""
	case "unix", "unixs":
	default:
		return nil, fmt.Errorf("URL scheme must be http, https, unix, or unixs: %s", text)
	}
	return u, nil
}

func (l *Loaded) urls(name string) (urls []*url.URL, err error) {
	for _, text := range l.list(name) {
		u, err := parseURL(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.where(lookup(name)), err)
		}
		urls = append(urls, u)
	}
	return urls, nil
}

// The values of flags whose form is checked.

func (l *Loaded) text(name string) string {
	if lookup(name) == nil {
		panic("config: no flag " + name)
	}
	return l.Values[name].Text
}

func (l *Loaded) list(name string) (all []string) {
	for _, v := range strings.Split(l.text(name), ",") {
		if v = strings.TrimSpace(v); v != "" {
			all = append(all, v)
		}
	}
	return all
}

func (l *Loaded) bool(name string) bool {
	b, _ := strconv.ParseBool(l.text(name))
	return b
}

func (l *Loaded) int(name string) int64 {
	n, _ := strconv.ParseInt(l.text(name), 10, 64)
	return n
}

func (l *Loaded) duration(name string) time.Duration {
	d, _ := time.ParseDuration(l.text(name))
	return d
}

func (l *Loaded) millis(name string) time.Duration {
	return time.Duration(min(l.int(name), 1<<31)) * time.Millisecond
}
