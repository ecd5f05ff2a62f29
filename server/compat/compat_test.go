package compat

import (
	"bufio"
	"context"
	"encoding/base64"
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
	"google.golang.org/protobuf/proto"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// TestGateway sends the same JSON and the same pages to both, in one order, so that revisions agree.
func TestGateway(t *testing.T) {
	sides := both(t)
	k, v := b64("foo"), b64("bar")
	for _, row := range []struct{ name, method, path, body string }{
		{"put", "", "/v3/kv/put", `{"key":"` + k + `","value":"` + v + `"}`},
		{"put with prev_kv", "", "/v3/kv/put", `{"key":"` + k + `","value":"` + v + `","prev_kv":true}`},
		{"put by the name of 3.3", "", "/v3beta/kv/put", `{"key":"` + k + `","value":"` + v + `"}`},
		{"put with camel case", "", "/v3/kv/put", `{"key":"` + k + `","value":"` + v + `","prevKv":true}`},
		{"range", "", "/v3/kv/range", `{"key":"` + k + `"}`},
		{"range of nothing", "", "/v3/kv/range", `{"key":"` + b64("none") + `"}`},
		{"range of all", "", "/v3/kv/range", `{"key":"AA==","range_end":"AA=="}`},
		{"range, keys only", "", "/v3/kv/range", `{"key":"AA==","range_end":"AA==","keys_only":true}`},
		{"range, count only", "", "/v3/kv/range", `{"key":"AA==","range_end":"AA==","count_only":true}`},
		{"range, sorted", "", "/v3/kv/range", `{"key":"AA==","range_end":"AA==","sort_order":"DESCEND","sort_target":"MOD"}`},
		{"range, old", "", "/v3/kv/range", `{"key":"` + k + `","revision":"2"}`},
		{"range, limited", "", "/v3/kv/range", `{"key":"AA==","range_end":"AA==","limit":"1"}`},
		{"range, negative limit", "", "/v3/kv/range", `{"key":"` + k + `","limit":-1}`},
		{"range, negative revision", "", "/v3/kv/range", `{"key":"` + k + `","revision":-1}`},
		{"range, future", "", "/v3/kv/range", `{"key":"` + k + `","revision":99}`},
		{"range, empty key", "", "/v3/kv/range", `{"key":""}`},
		{"range, empty body", "", "/v3/kv/range", ``},
		{"range, end before key", "", "/v3/kv/range", `{"key":"` + k + `","range_end":"YQ=="}`},
		{"range, unknown sort order", "", "/v3/kv/range", `{"key":"` + k + `","sort_order":77}`},
		{"range, unknown sort name", "", "/v3/kv/range", `{"key":"` + k + `","sort_order":"FOO"}`},
		{"range, unknown target", "", "/v3/kv/range", `{"key":"` + k + `","sort_target":-1}`},
		{"range, unknown field", "", "/v3/kv/range", `{"key":"` + k + `","nope":1}`},
		{"range, half JSON", "", "/v3/kv/range", `{`},
		{"range, no JSON", "", "/v3/kv/range", `nonsense`},
		{"range, a list", "", "/v3/kv/range", `[]`},
		{"range, bad base64", "", "/v3/kv/range", `{"key":"!!"}`},
		{"range, a number as key", "", "/v3/kv/range", `{"key":7}`},
		{"range, a text as number", "", "/v3/kv/range", `{"key":"` + k + `","limit":"x"}`},
		{"range, a large number", "", "/v3/kv/range", `{"key":"` + k + `","limit":"99999999999999999999"}`},
		{"range, two values", "", "/v3/kv/range", `{"key":"` + k + `"}{"key":"` + k + `"}`},
		{"range, invalid UTF-8", "", "/v3/kv/range", "{\"key\":\"\xff\xfe\"}"},
		{"range by GET", "GET", "/v3/kv/range", ``},
		{"an unknown path", "", "/v3/kv/nope", `{}`},
		{"put, empty key", "", "/v3/kv/put", `{"value":"` + v + `"}`},
		{"put, value and ignore_value", "", "/v3/kv/put", `{"key":"` + k + `","value":"` + v + `","ignore_value":true}`},
		{"put, lease and ignore_lease", "", "/v3/kv/put", `{"key":"` + k + `","lease":"1","ignore_lease":true}`},
		{"put, ignore_value of a new key", "", "/v3/kv/put", `{"key":"` + b64("new") + `","ignore_value":true}`},
		{"put, unknown lease", "", "/v3/kv/put", `{"key":"` + k + `","lease":"77"}`},
		{"put, 1.6 MB", "", "/v3/kv/put", `{"key":"` + k + `","value":"` + b64(strings.Repeat("x", 1_600_000)) + `"}`},
		{"put, 2.5 MB", "", "/v3/kv/put", `{"key":"` + k + `","value":"` + b64(strings.Repeat("x", 2_500_000)) + `"}`},
		{"txn", "", "/v3/kv/txn", `{"compare":[{"target":"VALUE","key":"` + k + `","value":"` + v + `"}],"success":[{"request_put":{"key":"` + k + `","value":"eA=="}},{"request_range":{"key":"` + k + `"}}]}`},
		{"txn that fails", "", "/v3/kv/txn", `{"compare":[{"target":"VERSION","result":"GREATER","key":"` + k + `","version":"100"}],"failure":[{"request_range":{"key":"` + k + `"}}]}`},
		{"txn of nothing", "", "/v3/kv/txn", `{}`},
		{"txn, empty operation", "", "/v3/kv/txn", `{"success":[{}]}`},
		{"txn, a key twice", "", "/v3/kv/txn", `{"success":[{"request_put":{"key":"` + k + `"}},{"request_put":{"key":"` + k + `"}}]}`},
		{"txn, 129 operations", "", "/v3/kv/txn", `{"success":[` + strings.TrimSuffix(strings.Repeat(`{"request_range":{"key":"YQ=="}},`, 129), ",") + `]}`},
		{"txn, unknown target", "", "/v3/kv/txn", `{"compare":[{"target":9,"key":"` + k + `"}]}`},
		{"deleterange", "", "/v3/kv/deleterange", `{"key":"` + k + `","prev_kv":true}`},
		{"deleterange of nothing", "", "/v3/kv/deleterange", `{"key":"` + k + `"}`},
		{"deleterange, empty key", "", "/v3/kv/deleterange", `{}`},
		{"compaction", "", "/v3/kv/compaction", `{"revision":"4","physical":true}`},
		{"compaction again", "", "/v3/kv/compaction", `{"revision":"4"}`},
		{"compaction, future", "", "/v3/kv/compaction", `{"revision":"999"}`},
		{"compaction, negative", "", "/v3/kv/compaction", `{"revision":"-5"}`},
		{"range, compacted", "", "/v3/kv/range", `{"key":"` + k + `","revision":"2"}`},
		{"lease grant", "", "/v3/lease/grant", `{"TTL":"100","ID":"7"}`},
		{"lease grant twice", "", "/v3/lease/grant", `{"TTL":"100","ID":"7"}`},
		{"lease grant, negative", "", "/v3/lease/grant", `{"TTL":"-1","ID":"8"}`},
		{"lease grant, too long", "", "/v3/lease/grant", `{"TTL":"9000000001","ID":"9"}`},
		{"put with a lease", "", "/v3/kv/put", `{"key":"` + k + `","lease":"7"}`},
		{"lease keepalive", "", "/v3/lease/keepalive", `{"ID":"7"}`},
		{"lease keepalive, unknown", "", "/v3/lease/keepalive", `{"ID":"70"}`},
		{"lease leases", "", "/v3/lease/leases", `{}`},
		{"lease leases by the old path", "", "/v3/kv/lease/leases", `{}`},
		{"lease timetolive, unknown", "", "/v3/lease/timetolive", `{"ID":"70"}`},
		{"lease revoke", "", "/v3/lease/revoke", `{"ID":"7"}`},
		{"lease revoke, unknown", "", "/v3/kv/lease/revoke", `{"ID":"7"}`},
		{"watch, empty range", "", "/v3/watch", `{"progress_request":{}}`},
		{"member list", "", "/v3/cluster/member/list", `{}`},
		{"status", "", "/v3/maintenance/status", `{}`},
		{"alarm", "", "/v3/maintenance/alarm", `{}`},
		{"defragment", "", "/v3/maintenance/defragment", `{}`},
		{"hash", "", "/v3/maintenance/hash", `{}`},
		{"hashkv", "", "/v3/maintenance/hashkv", `{}`},
		{"hashkv, future", "", "/v3/maintenance/hashkv", `{"revision":"999"}`},
		{"transfer-leadership to a stranger", "", "/v3/maintenance/transfer-leadership", `{"targetID":"1"}`},
		{"downgrade", "", "/v3/maintenance/downgrade", `{"action":"VALIDATE","version":"3.6.0"}`},
		{"auth status", "", "/v3/auth/status", `{}`},
		{"authenticate", "", "/v3/auth/authenticate", `{"name":"root","password":"x"}`},
		{"user list", "", "/v3/auth/user/list", `{}`},
		{"lock and unlock", "", "/v3/lock/lock", `{"name":"bA=="}`},
		{"election leader, none", "", "/v3/election/leader", `{"name":"ZQ=="}`},
		{"version", "GET", "/version", ""},
		{"version by POST", "POST", "/version", ""},
		{"health", "GET", "/health", ""},
		{"health, serializable", "GET", "/health?serializable=true", ""},
		{"livez", "GET", "/livez", ""},
		{"livez, verbose", "GET", "/livez?verbose", ""},
		{"readyz", "GET", "/readyz", ""},
		{"readyz, one check", "GET", "/readyz/data_corruption", ""},
		{"no page", "GET", "/nothing", ""},
		{"the root", "GET", "/", ""},
		{"member add", "", "/v3/cluster/member/add", `{"peerURLs":["http://h:1"]}`}, // the last one: etcd has no quorum then
	} {
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
	op := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
	}
	del := func(key, end string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
	}
	txn := func(then, otherwise []*pb.RequestOp) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: then, Failure: otherwise}}}
	}
	deep := txn([]*pb.RequestOp{op("deep")}, nil)
	for range 140 {
		deep = txn([]*pb.RequestOp{deep}, nil)
	}
	many := func(n int) (ops []*pb.RequestOp) {
		for k := range n {
			ops = append(ops, op(fmt.Sprint("many", k)))
		}
		return ops
	}
	for _, row := range []struct {
		name, method string
		r, into      proto.Message
	}{
		{"a key of 1 MiB", pb.KV_Put_FullMethodName, &pb.PutRequest{Key: make([]byte, 1<<20)}, &pb.PutResponse{}},
		{"a message of 3 MiB", pb.KV_Put_FullMethodName, &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 3<<20)}, &pb.PutResponse{}},
		{"128 puts", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: many(128)}, &pb.TxnResponse{}},
		{"129 puts", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: many(129)}, &pb.TxnResponse{}},
		{"nested, together too many", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: append(many(100), txn(many(29), nil))}, &pb.TxnResponse{}},
		{"nested, both branches put", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: []*pb.RequestOp{txn([]*pb.RequestOp{op("a")}, []*pb.RequestOp{op("a")})}}, &pb.TxnResponse{}},
		{"nested, put twice", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: []*pb.RequestOp{op("a"), txn([]*pb.RequestOp{op("a")}, nil)}}, &pb.TxnResponse{}},
		{"nested siblings, put twice", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: []*pb.RequestOp{txn([]*pb.RequestOp{op("a")}, nil), txn(nil, []*pb.RequestOp{op("a")})}}, &pb.TxnResponse{}},
		{"put and delete", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: []*pb.RequestOp{op("a"), del("a", "")}}, &pb.TxnResponse{}},
		{"delete and put", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: []*pb.RequestOp{del("a", "c"), op("b")}}, &pb.TxnResponse{}},
		{"delete beside put", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: []*pb.RequestOp{del("a", "b"), op("b")}}, &pb.TxnResponse{}},
		{"delete twice", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: []*pb.RequestOp{del("many", "many5"), del("many", "mano")}}, &pb.TxnResponse{}},
		{"nested too deep", pb.KV_Txn_FullMethodName, &pb.TxnRequest{Success: []*pb.RequestOp{deep}}, &pb.TxnResponse{}},
		{"delete of all from a key", pb.KV_DeleteRange_FullMethodName, &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, PrevKv: false}, &pb.DeleteRangeResponse{}},
		{"no request", pb.KV_Range_FullMethodName, &pb.RangeRequest{}, &pb.RangeResponse{}},
		{"an unknown method", "/etcdserverpb.KV/Nope", &pb.RangeRequest{}, &pb.RangeResponse{}},
		{"an unknown service", "/nope.KV/Range", &pb.RangeRequest{}, &pb.RangeResponse{}},
	} {
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
