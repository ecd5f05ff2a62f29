package config

import "time"

// Effect says what a flag of etcd does here.
type Effect int

const (
	Works   Effect = iota // it does here what it does in etcd
	Ignored               // it is checked and changes nothing, as Why says
	Refused               // any value but the default is refused with Why
)

func (e Effect) String() string { return [...]string{"works", "no effect", "refused"}[e] }

// kind is the type of a flag's value.
type kind int

const (
	text kind = iota
	boolean
	number   // not negative
	integer  // any sign
	duration // on the command line such as 5s; in the file also nanoseconds, as etcd wants them
	list     // comma-separated; in the file also a list
)

// Flag is one flag: its name in etcd, the default, and what it does here.
type Flag struct {
	Name    string
	Default string
	Usage   string
	Effect  Effect
	Why     string // of Ignored and Refused: a sentence
	File    string // name in the file if it is not Name; a dot separates the section from the name
	Own     bool   // etcd has no such flag
	kind    kind
}

// Sentences that several flags share.
const (
	whyDiscovery = "Millrace has no discovery. Name all members in --initial-cluster."
	whyBackend   = "This belongs to etcd's bbolt backend. The state is in an LSM tree, which needs no such setting."
	whyWAL       = "Snapshots and log segments are kept as long as a member may need them, bounded in bytes."
	whyPeerTLS   = "Certificates of members name member ids here (millrace cert). --print-config prints the ids. Use --peer-cert-file, --peer-key-file and --peer-trusted-ca-file with those."
	whyTracing   = "The service sends no spans yet. Leave it out."
	whyDigest    = "Members compare a digest of their states each second. This needs no schedule."
	whyAuth      = "This version has no users and roles yet. Leave it out; a later version serves them."
	whyLimits    = "Connections between members have bounds of their own."
)

// Flags are all flags, in the order of etcd's help.
var Flags = []Flag{
	{Name: "name", Default: "default", Usage: "human-readable name of this member"},
	{Name: "data-dir", Usage: "directory of this member; the default is NAME.etcd"},
	{Name: "wal-dir", Usage: "directory of the log", Effect: Refused, Why: "Log and state are in one directory, because snapshots are linked between them. Mount the fast disk at --data-dir."},
	{Name: "snapshot-count", Default: "10000", kind: number, Effect: Ignored, Why: "Snapshots follow the bytes of the log (--snapshot-log-bytes), not a number of commands."},
	{Name: "heartbeat-interval", Default: "100", kind: number, Usage: "milliseconds between heartbeats"},
	{Name: "election-timeout", Default: "1000", kind: number, Usage: "milliseconds without a leader until an election"},
	{Name: "initial-election-tick-advance", Default: "true", kind: boolean, Effect: Ignored, Why: "A member that has just started waits one election timeout."},
	{Name: "listen-peer-urls", Default: "http://localhost:2380", kind: list, Usage: "URL to listen on for other members"},
	{Name: "listen-client-urls", Default: "http://localhost:2379", kind: list, Usage: "URLs to listen on for clients"},
	{Name: "listen-client-http-urls", kind: list, Usage: "URLs for HTTP only; --listen-client-urls then serve gRPC only"},
	{Name: "max-snapshots", Default: "5", kind: number, Effect: Ignored, Why: whyWAL},
	{Name: "max-wals", Default: "5", kind: number, Effect: Ignored, Why: whyWAL},
	{Name: "memory-mlock", Default: "false", kind: boolean, Effect: Ignored, Why: "No file is mapped into memory whose pages must stay there."},
	{Name: "quota-backend-bytes", Default: "0", kind: integer, Usage: "bound of the bytes of all kept versions; 0 is none: the disk bounds them"},
	{Name: "backend-bbolt-freelist-type", Default: "map", Effect: Ignored, Why: whyBackend},
	{Name: "backend-batch-interval", Default: "0s", kind: duration, Effect: Ignored, Why: whyBackend},
	{Name: "backend-batch-limit", Default: "0", kind: number, Effect: Ignored, Why: whyBackend},
	{Name: "max-txn-ops", Default: "128", kind: number, Usage: "operations in one transaction"},
	{Name: "max-request-bytes", Default: "1572864", kind: number, Usage: "bytes of one request, at most 8 MiB less 64 KiB"},
	{Name: "max-concurrent-streams", Default: "4294967295", kind: number, Usage: "streams of one connection"},
	{Name: "grpc-keepalive-min-time", Default: "5s", kind: duration, Usage: "shortest time between pings of a client"},
	{Name: "grpc-keepalive-interval", Default: "2h0m0s", kind: duration, Usage: "time between pings of the server; 0 is none"},
	{Name: "grpc-keepalive-timeout", Default: "20s", kind: duration, Usage: "how long a ping may be unanswered"},
	{Name: "socket-reuse-port", Default: "false", kind: boolean, Usage: "SO_REUSEPORT on listeners of clients", File: "socket-options.reuse-port"},
	{Name: "socket-reuse-address", Default: "false", kind: boolean, Usage: "SO_REUSEADDR on listeners of clients", File: "socket-options.reuse-address", Effect: Ignored, Why: "Go sets SO_REUSEADDR on every listener."},
	{Name: "enable-grpc-gateway", Default: "true", kind: boolean, Usage: "serve the API as JSON below /v3/"},
	{Name: "raft-read-timeout", Default: "5s", kind: duration, Effect: Ignored, Why: whyLimits},
	{Name: "raft-write-timeout", Default: "5s", kind: duration, Effect: Ignored, Why: whyLimits},
	{Name: "feature-gates", Effect: Ignored, Why: "Feature gates switch parts of etcd's implementation, which are not here."},

	{Name: "initial-advertise-peer-urls", Default: "http://localhost:2380", kind: list, Usage: "URLs of this member in --initial-cluster"},
	{Name: "initial-cluster", Usage: "NAME=URL of all members, comma-separated; the default is this member alone"},
	{Name: "initial-cluster-state", Default: "new", Usage: "new; existing is not served yet"},
	{Name: "initial-cluster-token", Default: "etcd-cluster", Usage: "makes the ids of this cluster differ from those of another"},
	{Name: "advertise-client-urls", Default: "http://localhost:2379", kind: list, Usage: "URLs that clients are told"},
	{Name: "discovery", Effect: Refused, Why: whyDiscovery},
	{Name: "discovery-token", Effect: Refused, Why: whyDiscovery, File: "discovery-config.discovery-token"},
	{Name: "discovery-endpoints", kind: list, Effect: Refused, Why: whyDiscovery, File: "discovery-config.discovery-endpoints"},
	{Name: "discovery-dial-timeout", Default: "2s", kind: duration, Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-request-timeout", Default: "5s", kind: duration, Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-keepalive-time", Default: "2s", kind: duration, Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-keepalive-timeout", Default: "6s", kind: duration, Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-insecure-transport", Default: "true", kind: boolean, Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-insecure-skip-tls-verify", Default: "false", kind: boolean, Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-cert", Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-key", Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-cacert", Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-user", Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-password", Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-fallback", Default: "exit", Effect: Ignored, Why: whyDiscovery},
	{Name: "discovery-proxy", Effect: Refused, Why: whyDiscovery},
	{Name: "discovery-srv", Effect: Refused, Why: whyDiscovery},
	{Name: "discovery-srv-name", Effect: Ignored, Why: whyDiscovery},
	{Name: "strict-reconfig-check", Default: "true", kind: boolean, Effect: Ignored, Why: "A change that would lose the quorum is always refused."},
	{Name: "pre-vote", Default: "true", kind: boolean, Effect: Ignored, Why: "Millrace always asks before an election (pre-vote)."},
	{Name: "auto-compaction-retention", Default: "0", Usage: "what automatic compaction keeps; 0 is no compaction"},
	{Name: "auto-compaction-mode", Default: "periodic", Usage: "periodic (a duration, or hours) or revision (a number of revisions)"},
	{Name: "v2-deprecation", Default: "write-only", Effect: Ignored, Why: "There is no store of version 2."},

	{Name: "cert-file", Usage: "certificate for clients", File: "client-transport-security.cert-file"},
	{Name: "key-file", Usage: "key of --cert-file", File: "client-transport-security.key-file"},
	{Name: "client-cert-auth", Default: "false", kind: boolean, Usage: "clients need a certificate of --trusted-ca-file", File: "client-transport-security.client-cert-auth"},
	{Name: "client-cert-file", Effect: Ignored, Why: "The service dials itself in memory, without a certificate.", File: "client-transport-security.client-cert-file"},
	{Name: "client-key-file", Effect: Ignored, Why: "The service dials itself in memory, without a certificate.", File: "client-transport-security.client-key-file"},
	{Name: "client-crl-file", Usage: "revocation list for the certificates of clients"},
	{Name: "client-cert-allowed-hostname", kind: list, Usage: "names that a client's certificate may have", File: "client-transport-security.allowed-hostname"},
	{Name: "trusted-ca-file", Usage: "CAs of clients", File: "client-transport-security.trusted-ca-file"},
	{Name: "auto-tls", Default: "false", kind: boolean, Effect: Refused, Why: "Certificates are not generated yet. Name files with --cert-file and --key-file.", File: "client-transport-security.auto-tls"},
	{Name: "peer-cert-file", Usage: "certificate that names this member (millrace cert)", File: "peer-transport-security.cert-file"},
	{Name: "peer-key-file", Usage: "key of --peer-cert-file", File: "peer-transport-security.key-file"},
	{Name: "peer-client-cert-auth", Default: "false", kind: boolean, Effect: Ignored, Why: "Members always prove their ids to each other if they use TLS.", File: "peer-transport-security.client-cert-auth"},
	{Name: "peer-client-cert-file", Effect: Refused, Why: whyPeerTLS, File: "peer-transport-security.client-cert-file"},
	{Name: "peer-client-key-file", Effect: Refused, Why: whyPeerTLS, File: "peer-transport-security.client-key-file"},
	{Name: "peer-trusted-ca-file", Usage: "CAs of members", File: "peer-transport-security.trusted-ca-file"},
	{Name: "peer-cert-allowed-cn", kind: list, Effect: Refused, Why: whyPeerTLS, File: "peer-transport-security.allowed-cn"},
	{Name: "peer-cert-allowed-hostname", kind: list, Effect: Refused, Why: whyPeerTLS, File: "peer-transport-security.allowed-hostname"},
	{Name: "peer-auto-tls", Default: "false", kind: boolean, Effect: Refused, Why: whyPeerTLS, File: "peer-transport-security.auto-tls"},
	{Name: "self-signed-cert-validity", Default: "1", kind: number, Effect: Ignored, Why: "Certificates are not generated yet."},
	{Name: "peer-crl-file", Effect: Refused, Why: whyPeerTLS},
	{Name: "cipher-suites", kind: list, Usage: "cipher suites of TLS 1.2 for clients"},
	{Name: "cors", Default: "*", kind: list, Usage: "origins that browsers may come from"},
	{Name: "host-whitelist", Default: "*", kind: list, Usage: "names by which HTTP clients may call an insecure server"},
	{Name: "tls-min-version", Default: "TLS1.2", Usage: "TLS1.2 or TLS1.3"},
	{Name: "tls-max-version", Usage: "TLS1.2 or TLS1.3"},

	{Name: "auth-token", Default: "simple", Effect: Refused, Why: whyAuth},
	{Name: "bcrypt-cost", Default: "10", kind: number, Effect: Ignored, Why: whyAuth},
	{Name: "auth-token-ttl", Default: "300", kind: number, Effect: Ignored, Why: whyAuth},

	{Name: "enable-pprof", Default: "false", kind: boolean, Usage: "serve profiles below /debug/pprof/"},
	{Name: "metrics", Default: "basic", Usage: "basic, or extensive: with histograms of gRPC"},
	{Name: "listen-metrics-urls", kind: list, Usage: "more URLs for /metrics and /health"},

	{Name: "logger", Default: "zap", Effect: Ignored, Why: "Lines are written as JSON or text, as --log-format says."},
	{Name: "log-outputs", Default: "default", kind: list, Usage: "stdout, stderr or files"},
	{Name: "log-level", Default: "info", Usage: "debug, info, warn or error"},
	{Name: "log-format", Default: "json", Usage: "json or console"},
	{Name: "enable-log-rotation", Default: "false", kind: boolean, Effect: Refused, Why: "Write to stderr, and let the system rotate (journald, logrotate with copytruncate)."},
	{Name: "log-rotation-config-json", Default: `{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}`, Effect: Ignored, Why: "Files are not rotated here."},
	{Name: "warning-unary-request-duration", Default: "300ms", kind: duration, Usage: "a request that takes longer is told in the log"},

	{Name: "enable-distributed-tracing", Default: "false", kind: boolean, Effect: Refused, Why: whyTracing},
	{Name: "distributed-tracing-address", Default: "localhost:4317", Effect: Ignored, Why: whyTracing},
	{Name: "distributed-tracing-service-name", Default: "etcd", Effect: Ignored, Why: whyTracing},
	{Name: "distributed-tracing-instance-id", Effect: Ignored, Why: whyTracing},
	{Name: "distributed-tracing-sampling-rate", Default: "0", kind: number, Effect: Ignored, Why: whyTracing},

	{Name: "corrupt-check-time", Default: "0s", kind: duration, Effect: Ignored, Why: whyDigest},
	{Name: "compact-hash-check-time", Default: "1m0s", kind: duration, Effect: Ignored, Why: whyDigest},
	{Name: "compaction-batch-limit", Default: "1000", kind: number, Effect: Ignored, Why: "The sweep after a compaction runs beside traffic and is bounded in bytes."},
	{Name: "peer-skip-client-san-verification", Default: "false", kind: boolean, Effect: Refused, Why: whyPeerTLS, File: "peer-transport-security.skip-client-san-verification"},
	{Name: "watch-progress-notify-interval", Default: "10m0s", kind: duration, Usage: "time between progress notifications of a quiet watch"},
	{Name: "warning-apply-duration", Default: "100ms", kind: duration, Effect: Ignored, Why: "Explain names a state machine that is slow."},
	{Name: "bootstrap-defrag-threshold-megabytes", Default: "0", kind: number, Effect: Ignored, Why: whyBackend},
	{Name: "max-learners", Default: "1", kind: number, Effect: Ignored, Why: "Members do not change yet."},
	{Name: "compaction-sleep-interval", Default: "10ms", kind: duration, Effect: Ignored, Why: "The sweep after a compaction runs beside traffic and is bounded in bytes."},
	{Name: "downgrade-check-time", Default: "5s", kind: duration, Effect: Ignored, Why: "There is no mode for downgrades: old and new members run side by side."},
	{Name: "snapshot-catchup-entries", Default: "5000", kind: number, Effect: Ignored, Why: whyWAL},

	{Name: "force-new-cluster", Default: "false", kind: boolean, Effect: Refused, Why: "A survivor of a lost majority is rescued with \"millrace members rescue\", which shows what may be lost first."},
	{Name: "unsafe-no-fsync", Default: "false", kind: boolean, Effect: Refused, Why: "Writes always reach the disk. Leave it out; put a test's directory on tmpfs."},

	{Name: "storage-engine", Default: "pebble", Usage: "pebble, or memory for tests: the state is replayed at each start", Own: true},
	{Name: "head-cache-bytes", Default: "67108864", kind: number, Usage: "memory for the newest version of keys", Own: true},
	{Name: "value-cache-bytes", Default: "33554432", kind: number, Usage: "memory for keys that were read, with their values", Own: true},
	{Name: "block-cache-bytes", Default: "100663296", kind: number, Usage: "memory for blocks of the LSM tree", Own: true},
	{Name: "watch-feed-bytes", Default: "33554432", kind: number, Usage: "memory for the latest events", Own: true},
	{Name: "watch-memory-bytes", Default: "134217728", kind: number, Usage: "memory for events that wait for watchers", Own: true},
	{Name: "range-memory-bytes", Default: "268435456", kind: number, Usage: "memory for large answers that are made, or wait for their clients; 0: no bound", Own: true},
	{Name: "snapshot-log-bytes", Default: "0", kind: number, Usage: "bytes of the log between two snapshots, and twice as many behind one; 0: 64 to 128 MiB, by the size of the state", Own: true},
	{Name: "stop-timeout", Default: "5s", kind: duration, Usage: "how long requests under way are waited for at the end", Own: true},
}

// minProgressInterval is the shortest interval of progress notifications; etcd raises shorter ones to
// it, too.
const minProgressInterval = 100 * time.Millisecond

// lookup returns the flag of a name, or nil.
func lookup(name string) *Flag {
	for i := range Flags {
		if Flags[i].Name == name {
			return &Flags[i]
		}
	}
	return nil
}
