package answers

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// lister answers each range with 4 MiB.
type lister struct{ pb.UnimplementedKVServer }

func (lister) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("a"), Value: make([]byte, 4*mib)}}}, nil
}

// stalled is a connection that reads nothing more after stall.
type stalled struct {
	net.Conn
	mu   sync.Mutex
	on   chan struct{} // closed while it reads
	over chan struct{}
	once sync.Once
}

func (s *stalled) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = make(chan struct{})
}

func (s *stalled) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.mu.Lock()
	on := s.on
	s.mu.Unlock()
	select {
	case <-on:
		return n, err
	case <-s.over:
		return 0, io.EOF
	}
}

func (s *stalled) Close() error {
	s.once.Do(func() { close(s.over) })
	return s.Conn.Close()
}

// service is a gRPC server with a budget, and a client of it.
func service(t *testing.T, b *Budget) (kv pb.KVClient, conn func() *stalled, closeClient func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(b.Codec()))
	pb.RegisterKVServer(s, lister{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	var mu sync.Mutex
	var last *stalled
	client, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			on := make(chan struct{})
			close(on)
			mu.Lock()
			defer mu.Unlock()
			last = &stalled{Conn: c, on: on, over: make(chan struct{})}
			return last, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return pb.NewKVClient(client), func() *stalled { mu.Lock(); defer mu.Unlock(); return last }, func() { _ = client.Close() }
}

// wait waits until f holds.
func wait(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; !f(); n++ {
		if n == 2000 {
			t.Fatalf("not within 20 s: %s", what)
		}
		<-tick.C
	}
}

// What a client has not read counts. It counts no more when the client has read it, has given up, or is gone.
func TestWhatIsSentCountsUntilItIsWritten(t *testing.T) {
	b := New(mib)
	none := func() bool { runtime.GC(); return b.Usage().Bytes == 0 }
	kv, conn, done := service(t, b)
	defer done()
	list := func(ctx context.Context) error {
		_, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte("a")})
		return err
	}
	if err := list(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, "an answer that was read counts no more", none)

	conn().stall()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- list(ctx) }()
	wait(t, "an answer that is not read counts", func() bool { return b.Usage().Bytes >= 4*mib })
	cancel() // a reset of the stream
	if <-ended == nil {
		t.Error("a list that was given up has an answer")
	}
	wait(t, "an answer whose client has given up counts no more", none)

	go func() { ended <- list(t.Context()) }()
	wait(t, "an answer that is not read counts", func() bool { return b.Usage().Bytes >= 4*mib })
	_ = conn().Close()
	if <-ended == nil {
		t.Error("a list on a connection that has ended has an answer")
	}
	wait(t, "an answer whose connection is gone counts no more", none)
	if err := list(t.Context()); err != nil {
		t.Errorf("on a new connection: %v", err)
	}
}

// JSON counts while it is written.
func TestWhatIsWrittenAsJSONCounts(t *testing.T) {
	b := New(mib)
	writes := make(chan struct{})
	s := httptest.NewServer(b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, 32*mib))
		if _, ok := w.(http.Flusher); !ok {
			t.Error("the writer does not flush")
		}
		close(writes)
	})))
	defer s.Close()
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	wait(t, "the answer counts", func() bool { return b.Usage().Bytes >= 32*mib })
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	<-writes
	if n := b.Usage().Bytes; n != 0 {
		t.Errorf("%d bytes count afterwards", n)
	}
}
