package front

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// FuzzGateway sends bodies to the JSON gateway. Whatever they are, the answer is JSON, and no fault of the
// server.
func FuzzGateway(f *testing.F) {
	paths := []string{"/v3/kv/range", "/v3/kv/put", "/v3/kv/txn", "/v3/lease/grant", "/v3/auth/authenticate"}
	for k, body := range []string{
		`{"key":"Zm9v","limit":"1"}`, `{"key":"Zm9v","value":"!!"}`, `{"success":[{"request_put":{"key":"YQ=="}},{}]}`, `{"TTL":1e2,"ID":"-7"}`,
		"{\"name\":\"\xff\"}", `[]`, `{"key":`, `{"limit":9223372036854775808}`, `null`, ``,
	} {
		f.Add(k, []byte(body))
	}
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer()
	pb.RegisterKVServer(s, &kv{})
	go func() { _ = s.Serve(l) }()
	f.Cleanup(s.Stop)
	conn, err := grpc.NewClient("passthrough:///fuzz", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	g, err := newGateway(f.Context(), conn, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, k int, body []byte) {
		path := paths[uint(k)%uint(len(paths))]
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body))))
		answer, _ := io.ReadAll(w.Result().Body)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented || !json.Valid(answer) {
			t.Errorf("%s %q: %d %q", path, body, w.Code, answer)
		}
	})
}
