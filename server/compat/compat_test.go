package compat

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// TestGateway sends the same JSON and the same pages to both, in one order, so that revisions agree.
func TestGateway(t *testing.T) {
	sides := both(t)
	for _, row := range gatewayRows() {
		method := row.method
		if method == "" {
			method = "POST"
		}
		var answers []string
		for _, s := range sides {
			if strings.HasPrefix(row.path, "/v3/watch") {
				continue // a stream that stays open
			}
			answers = append(answers, s.http(method, row.path, row.body))
		}
		if len(answers) == 2 {
			judge(t, row.name, answers)
		}
	}
}

// TestBytes sends bytes that are no request.
func TestBytes(t *testing.T) {
	sides := both(t)
	for name, send := range map[string]string{
		"nothing":              "",
		"half a preface":       "PRI * HTT",
		"a preface and noise":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 64),
		"half a request":       "POST /v3/kv/range HTTP/1.1\r\nHost: h\r\nContent-Le",
		"half a body":          "POST /v3/kv/range HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{\"key\"",
		"no host":              "GET /version HTTP/1.1\r\n\r\n",
		"noise":                "\x00\x01\x02\x03\r\n\r\n",
		"a TLS hello":          "\x16\x03\x01\x00\x05hello",
		"a version of the web": "GET / HTTP/3.0\r\n\r\n",
	} {
		judge(t, "bytes: "+name, []string{sides[0].raw(send), sides[1].raw(send)})
	}
	for _, s := range sides {
		if _, err := s.cl.Put(t.Context(), "after", "noise"); err != nil {
			t.Errorf("%s, after noise: %v", s.name, err)
		}
	}
}

// TestRPC sends requests that the gateway cannot make.
func TestRPC(t *testing.T) {
	sides := both(t)
	for _, row := range rpcRows() {
		var answers []string
		for _, s := range sides {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			into := row.into.ProtoReflect().New().Interface()
			err := s.conn.Invoke(ctx, row.method, row.r, into, grpc.MaxCallSendMsgSize(16<<20))
			cancel()
			if err != nil {
				answers = append(answers, fmt.Sprintf("%v %s", status.Code(err), s.normal(status.Convert(err).Message())))
				continue
			}
			b, _ := protojson.Marshal(into)
			answers = append(answers, s.normal(compactJSON(b)))
		}
		judge(t, row.name, answers)
	}
}

// TestWatch sends the same requests on a watch stream, one after the other, and compares all responses.
func TestWatch(t *testing.T) {
	sides := both(t)
	var logs []string
	for _, s := range sides {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		stream, err := pb.NewWatchClient(s.conn).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		step := func(r *pb.WatchRequest, responses int) {
			if r != nil {
				if err := stream.Send(r); err != nil {
					t.Fatal(err)
				}
			}
			for range responses {
				got, err := stream.Recv()
				if err != nil {
					t.Fatalf("%s: %v, behind\n%s", s.name, err, log.String())
				}
				b, _ := protojson.Marshal(got)
				fmt.Fprintln(&log, s.normal(compactJSON(b)))
			}
		}
		create := func(r *pb.WatchCreateRequest) *pb.WatchRequest {
			return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
		}
		put := func(k, v string) {
			if _, err := s.cl.Put(ctx, k, v); err != nil {
				t.Fatal(err)
			}
		}
		put("a", "1")
		put("a", "2")
		step(create(&pb.WatchCreateRequest{Key: []byte("a")}), 1)
		put("a", "3")
		step(nil, 1)
		step(create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2, PrevKv: true}), 2)
		step(create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 5, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}}), 1)
		step(create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 5}), 1)
		step(create(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")}), 1)
		step(create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: -1}), 1)
		step(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 0}}}, 1)
		step(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 1}}}, 1)
		if _, err := s.cl.Delete(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		step(nil, 1)
		step(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}, 1)
		if _, err := s.cl.Compact(ctx, 4); err != nil {
			t.Fatal(err)
		}
		step(create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2}), 2)
		step(create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 4}), 2)
		step(create(&pb.WatchCreateRequest{StartRevision: 4, Fragment: true, RangeEnd: []byte{0}}), 2)
		logs = append(logs, log.String())
	}
	theirs, ours := strings.Split(logs[0], "\n"), strings.Split(logs[1], "\n")
	for k := range max(len(theirs), len(ours)) {
		if k >= len(theirs) || k >= len(ours) {
			t.Fatalf("%d responses of etcd, %d of millrace", len(theirs), len(ours))
		}
		judge(t, fmt.Sprintf("watch, response %d", k+1), []string{theirs[k], ours[k]})
	}
}

// TestEtcdctl runs the same commands of etcdctl on both.
func TestEtcdctl(t *testing.T) {
	etcdctl := binary(t, "MILLRACE_TEST_ETCDCTL")
	sides := both(t)
	for _, row := range []string{
		"put a 1", "put a 2 --prev-kv", "put a 3 -w json", "put b 1 -w fields", "put", "put a 1 --lease=77", "put c 1 --ignore-value",
		"get a", "get a -w json", "get a -w fields", "get a --rev=2", "get a --rev=99", "get --prefix a --keys-only", "get a z --limit=1", "get a z --sort-by=VALUE --order=DESCEND",
		"get --from-key a --count-only -w fields", "get nothing", "get a --consistency=s", "get a --hex",
		"del a --prev-kv", "del a", "del --prefix b",
		"txn <mod(\"x\") = \"0\"\n\nput x 1\n\nput x 2\n\n", "txn <val(\"x\") = \"1\"\n\nget x\n\ndel x\n\n", "txn <nonsense\n\n\n\n",
		"watch x --rev=5 --limit", "endpoint hashkv", "compact 4", "compact 4", "endpoint hashkv", "compact 999", "compact 5 --physical", "get x --rev=2",
		"lease grant 100", "lease grant x", "lease list", "lease timetolive 1234", "lease revoke 1234", "lease keep-alive 1234 --once",
		"lock l echo inside", "member list", "member list -w json", "endpoint health", "endpoint status -w json", "defrag", "alarm list", "alarm disarm",
		"auth status", "user list", "role list", "user add x:x", "auth enable", "move-leader 1", "snapshot status nothing", "downgrade validate 3.6", "member add n --peer-urls=http://h:1",
	} {
		args, input, _ := strings.Cut(row, "<")
		var answers []string
		for _, s := range sides {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			cmd := exec.CommandContext(ctx, etcdctl, append([]string{"--endpoints=" + s.addr, "--command-timeout=3s"}, strings.Fields(args)...)...)
			cmd.Stdin = strings.NewReader(input)
			var stdout, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			cancel()
			var told []string
			for _, line := range strings.Split(stderr.String(), "\n") {
				if !strings.HasPrefix(line, "{") { // lines of the client's log
					told = append(told, line)
				}
			}
			answers = append(answers, fmt.Sprintf("%v %s%s", err, s.normal(stdout.String()), s.normal(strings.Join(told, "\n"))))
		}
		judge(t, "etcdctl "+row, answers)
	}
}

// TestJSONStreams watches through the gateway: one JSON object for each response, in one body.
func TestJSONStreams(t *testing.T) {
	sides := both(t)
	var answers []string
	for _, s := range sides {
		for _, v := range []string{"1", "2"} {
			if _, err := s.cl.Put(t.Context(), "foo", v); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		r, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.addr+"/v3/watch", strings.NewReader(`{"create_request":{"key":"`+b64("foo")+`","start_revision":"2"}}`))
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(a.Body)
		var log strings.Builder
		for n := 0; n < 2 && lines.Scan(); n++ {
			fmt.Fprintln(&log, s.normal(compactJSON(lines.Bytes())))
		}
		cancel()
		_ = a.Body.Close()
		answers = append(answers, log.String())
	}
	judge(t, "watch as JSON", answers)
}
