package main

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/remote"
)

// millrace lab member, load, certificates and collect: a lab whose hosts are processes, here or on several
// machines.

// labProcesses are the verbs of lab that are for members in processes of their own.
func labProcesses(a app) []*cobra.Command {
	return []*cobra.Command{newLabMember(a), newLabLoad(a), newLabCollect(a), newLabCertificates(a)}
}

const memberLong = `member is one host of a lab's cluster, as a process. Start one for each address of --members, on any machines, with the
same flags except --id; then put a load on them with millrace lab load. docs/howto/lab.md has the commands, also for
Kubernetes.

It prints a line of JSON when it is ready: when a leader is known in every group. On SIGTERM or Ctrl-C it hands over
what it leads, closes its log and ends with status 0. Its files stay in --dir, and a member that starts again goes on from
there.

Ports
  --listen  for the other members: the transport of Millrace.
  --loads   for loads: writes, reads, and what the process has used.
  --health  for health checks over HTTP: /livez, /readyz.
With --certificates, the first two are TLS, with a certificate on both sides. The directory holds what
millrace lab certificates makes: ca.pem, member-ID.pem, member-ID-key.pem.

`

func newLabMember(a app) *cobra.Command {
	var p remote.MemberPlan
	var members string
	cmd := &cobra.Command{
		Use:   "member",
		Short: "Run one host of a cluster for the lab, as a process",
		Long:  memberLong + labExitHelp(),
		Example: `  millrace lab member --id 1 --members 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000 --loads :7001 --dir /data \
      --transport tcp+tls --certificates pki`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.Members = splitAddrs(members)
			s := remote.Streams{In: os.Stdin, Out: a.stdout, Logger: slog.New(slog.NewTextHandler(a.stderr, nil)), Version: versionText()}
			return remote.RunMember(cmd.Context(), p, s)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Uint64Var(&p.ID, "id", 0, "this member's id, its place in --members from 1; 0: the name of this machine ends with -N, as in a StatefulSet, and the id is N + 1")
	flags.StringVar(&members, "members", "", "`HOST:PORT,…` of all members, where they listen for each other; a - for each: they come on the standard input, and the member ends with that")
	flags.StringVar(&p.Dir, "dir", "", "`directory` for its files, which exists; they stay")
	flags.StringVar(&p.Listen, "listen", "", "`address` to listen on for other members (default its own in --members)")
	flags.StringVar(&p.Loads, "loads", "127.0.0.1:7001", "`address` to listen on for loads")
	flags.StringVar(&p.Health, "health", "", "`address` to listen on for health checks (default none)")
	flags.StringVar(&p.Certificates, "certificates", "", "`directory` with ca.pem, member-ID.pem and member-ID-key.pem; needs --transport tcp+tls")
	flags.BoolVar(&p.Insecure, "insecure", false, "allow plain TCP at addresses that other machines can reach")
	flags.StringVar(&p.Log, "log", "group", "when an append to the log counts, see millrace lab measure --help")
	flags.StringVar(&p.Engine, "engine", "memory", "the state machine")
	flags.StringVar(&p.Transport, "transport", "tcp", "tcp, tcp+tls")
	flags.StringVar(&p.Pipeline, "pipeline", "async", "basic, parallel, clamped, async")
	flags.BoolVar(&p.EarlyAck, "early-ack", true, "acknowledge a write when it is committed; =false: when the state machine has applied it")
	flags.IntVar(&p.Groups, "groups", 1, "replicated logs on the same members")
	flags.BoolVar(&p.Leases, "leases", false, "leaders may answer reads by lease")
	flags.IntVar(&p.Depth, "depth", 0, "batches of a leader that are not committed, at most; 0: no bound")
	flags.DurationVar(&p.FsyncDelay, "fsync-delay", 0, "added to every fsync, after the real one")
	flags.Int64Var(&p.Bandwidth, "disk-bandwidth", 0, "bytes a second that the disk writes at most; 0: the real disk's")
	flags.DurationVar(&p.NetDelay, "net-delay", 0, "added to what this member sends to others")
	flags.IntVar(&p.SnapshotMiB, "snapshot-mib", 0, "take a snapshot each time the log has grown by this, and cut the log; 0: keep the whole log")
	flags.DurationVar(&p.Probe, "probe", 3*time.Second, "how long disk and memory of the machine are tried before; 0: not at all")
	flags.DurationVar(&p.For, "for", 0, "end by itself, this long after it was ready; 0: when it is told to")
	return cmd
}

func splitAddrs(list string) (all []string) {
	for addr := range strings.SplitSeq(list, ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			all = append(all, addr)
		}
	}
	return all
}

// memberCommand is the command line of a member: the inverse of the flags above.
func memberCommand(program string) func(p remote.MemberPlan) []string {
	return func(p remote.MemberPlan) []string {
		return []string{
			program, "lab", "member", "--id=" + strconv.FormatUint(p.ID, 10), "--members=" + strings.Join(p.Members, ","), "--dir=" + p.Dir,
			"--listen=" + p.Listen, "--loads=" + p.Loads, "--health=" + p.Health, "--certificates=" + p.Certificates,
			"--log=" + p.Log, "--engine=" + p.Engine, "--transport=" + p.Transport, "--pipeline=" + p.Pipeline,
			fmt.Sprintf("--early-ack=%v", p.EarlyAck), "--groups=" + strconv.Itoa(p.Groups), fmt.Sprintf("--leases=%v", p.Leases),
			"--depth=" + strconv.Itoa(p.Depth), "--disk-bandwidth=" + strconv.FormatInt(p.Bandwidth, 10), "--fsync-delay=" + p.FsyncDelay.String(), "--net-delay=" + p.NetDelay.String(), "--snapshot-mib=" + strconv.Itoa(p.SnapshotMiB),
			"--probe=" + p.Probe.String(), "--for=" + p.For.String(),
		}
	}
}
