package compat

import (
	"encoding/base64"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// gatewayRow is a request of HTTP; without a method it is POST.
type gatewayRow struct{ name, method, path, body string }

func gatewayRows() []gatewayRow {
	k, v := b64("foo"), b64("bar")
	return []gatewayRow{
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
	}
}

// rpcRow is a request that the gateway cannot make.
type rpcRow struct {
	name, method string
	r, into      proto.Message
}

func rpcRows() []rpcRow {
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
	return []rpcRow{
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
	}
}
