package answers

import (
	"net/http"
	"runtime"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Codec returns gRPC's codec of protobuf. What it encodes counts until the transport needs it no more.
// Compressed answers count until they are compressed.
func (b *Budget) Codec() encoding.CodecV2 {
	inner := encoding.GetCodecV2(proto.Name)
	if !b.bounds() {
		return inner
	}
	return codec{inner, b}
}

type codec struct {
	encoding.CodecV2
	b *Budget
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(v)
	if err != nil || len(data) != 1 || data.Len() <= freeBytes {
		return data, err
	}
	s := &sending{data[0], c.b.hold(int64(data.Len()))}
	// The transport frees what it writes. What a connection that fails has left goes to the collector.
	runtime.AddCleanup(s, (*hold).release, s.hold)
	content := data[0].ReadOnlyData()
	return mem.BufferSlice{mem.NewBuffer(&content, s)}, nil
}

// sending is the pool to which a buffer returns when it is written.
type sending struct {
	mem.Buffer
	hold *hold
}

// Get implements mem.BufferPool.
func (s *sending) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool.
func (s *sending) Put(*[]byte) {
	s.Buffer.Free()
	s.hold.release()
}

// Handler counts what h writes while a client takes it.
func (b *Budget) Handler(h http.Handler) http.Handler {
	if !b.bounds() {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" { // a websocket takes the connection, and has parts of streams only
			w = writer{w, b}
		}
		h.ServeHTTP(w, r)
	})
}

type writer struct {
	http.ResponseWriter
	b *Budget
}

func (w writer) Write(p []byte) (int, error) {
	if len(p) > freeBytes {
		defer w.b.hold(int64(len(p))).release()
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w writer) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
