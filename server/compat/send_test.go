package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

// How a row is sent. Its first word says how:
//
//	grpc METHOD [name=value …] and the request as JSON, or several of a stream in the lines below
//	raw METHOD "bytes of the message", as Go writes strings
//	http METHOD PATH [Name:value …], and the body in the line below
//	bytes "bytes of a connection"; the answer is a line of HTTP, or what frames of HTTP/2 say
//	streams N: so many watches at one time on one connection
//	connections N: so many connections that say nothing

// sendTimeout bounds a row.
const sendTimeout = 15 * time.Second

// resets is how often a row is sent that ends with a reset.
const resets = 20

// quiet is how long nothing comes when a stream has said all.
const quiet = 300 * time.Millisecond

// processEnds is the answer of a process that a row has ended.
const processEnds = "the process ends"

// send sends a row, and returns the lines of the answer.
func (s *side) send(t *testing.T, r *row, lines []string) []string {
	t.Helper()
	if len(lines) == 0 {
		t.Fatalf("%s sends nothing", r.name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), sendTimeout)
	defer cancel()
	how, rest, _ := strings.Cut(lines[0], " ")
	var out string
	switch how {
	case "grpc":
		// A reset has lost what the other side said before: a connection was closed with bytes of ours unread.
		for try := 0; try == 0 || try < resets && strings.Contains(out, syscall.ECONNRESET.Error()); try++ {
			out = s.call(ctx, r, rest, lines[1:])
		}
		// A connection of a process that ends is closed, reset or refused.
		if strings.HasPrefix(out, codes.Unavailable.String()+": ") && s.endsNow() {
			out = processEnds
		}
	case "raw":
		method, message, _ := strings.Cut(rest, " ")
		into := []byte(nil)
		err := s.conn.Invoke(ctx, full(method), unquote(t, message), &into, grpc.ForceCodec(asItIs{}))
		out = told(err)
	case "http":
		out = s.ask(ctx, rest, strings.Join(lines[1:], "\n"))
	case "bytes":
		out = s.connection(unquote(t, rest))
	case "streams", "connections":
		n, err := strconv.Atoi(rest)
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		out = map[string]func(context.Context, int) string{"streams": s.streams, "connections": s.connections}[how](ctx, n)
	default:
		t.Fatalf("%s: %q is no way to send", r.name, how)
	}
	var answer []string
	for line := range strings.SplitSeq(strings.TrimRight(s.normal(out), "\n"), "\n") {
		answer = append(answer, short(strings.TrimRight(line, " ")))
	}
	return answer
}

// short cuts a long line, and adds a sum of what is missing.
func short(line string) string {
	const longest = 400
	if len(line) <= longest {
		return line
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, line)
	return fmt.Sprintf("%s… (%d bytes, %08x)", line[:longest/2], len(line), h.Sum32())
}

func unquote(t *testing.T, s string) []byte {
	t.Helper()
	if !strings.HasPrefix(s, `"`) {
		return []byte(s)
	}
	out, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("%.100s: %v", s, err)
	}
	return []byte(out)
}

// full is the path of a method: KV/Put is one of etcdserverpb.
func full(method string) string {
	service, name, _ := strings.Cut(method, "/")
	if !strings.Contains(service, ".") {
		service = map[string]string{"Lock": "v3lockpb.", "Election": "v3electionpb."}[service] + service
		if !strings.Contains(service, ".") {
			service = "etcdserverpb." + service
		}
	}
	return "/" + service + "/" + name
}

// told is what a client sees of an error.
func told(err error) string {
	if err == nil {
		return "OK"
	}
	return fmt.Sprintf("%v: %s", status.Code(err), status.Convert(err).Message())
}

// asItIs is a codec of bytes.
type asItIs struct{}

func (asItIs) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (asItIs) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}
func (asItIs) Name() string { return "proto" }

// call calls a method with requests that are JSON.
func (s *side) call(ctx context.Context, r *row, rest string, more []string) string {
	head, body, _ := strings.Cut(rest, "{")
	fields := strings.Fields(head)
	for _, f := range fields[1:] {
		name, value, _ := strings.Cut(f, "=")
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	path := full(fields[0])
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(path[1:], "/", ".")))
	var of protoreflect.MethodDescriptor
	if err == nil {
		of = found.(protoreflect.MethodDescriptor)
	} else { // a method that is not there takes what Range takes
		of = pb.File_rpc_proto.Services().ByName("KV").Methods().ByName("Range")
	}
	make := func(d protoreflect.MessageDescriptor) proto.Message {
		m, _ := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		return m.New().Interface()
	}
	var requests []proto.Message
	for _, text := range append([]string{"{" + body}, more...) {
		if text == "{" {
			continue
		}
		m := make(of.Input())
		if err := protojson.Unmarshal([]byte(text), m); err != nil {
			return "the row is no request: " + err.Error()
		}
		requests = append(requests, m)
	}
	if of.IsStreamingServer() {
		want := len(r.etcd)
		if len(r.here) > 0 && s.name != "etcd" {
			want = len(r.here)
		}
		if slices.Equal(r.etcd, []string{silent}) {
			want = 0
		}
		return s.stream(ctx, of, path, requests, func() proto.Message { return make(of.Output()) }, want)
	}
	into := make(of.Output())
	if err := s.conn.Invoke(ctx, path, requests[0], into, grpc.MaxCallSendMsgSize(64<<20), grpc.MaxCallRecvMsgSize(64<<20)); err != nil {
		return told(err)
	}
	b, _ := protojson.Marshal(into)
	return "OK " + compactJSON(b)
}

// silent is the answer of a stream that says nothing.
const silent = "nothing comes"

// stream sends all requests of a stream, and returns what comes. It waits for the responses that the table
// has, as long as they may take, and then for a quiet moment.
func (s *side) stream(ctx context.Context, of protoreflect.MethodDescriptor, path string, requests []proto.Message, response func() proto.Message, want int) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: of.IsStreamingClient()}, path)
	if err != nil {
		return told(err)
	}
	lines := make(chan string)
	go func() {
		for {
			into := response()
			err := st.RecvMsg(into)
			b, _ := protojson.Marshal(into)
			line := "OK " + compactJSON(b)
			if errors.Is(err, io.EOF) {
				line = "end"
			} else if err != nil {
				line = told(err)
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
			if err != nil {
				close(lines)
				return
			}
		}
	}()
	var out []string
	for _, r := range requests {
		if err := st.SendMsg(r); err != nil {
			break
		}
	}
	if !of.IsStreamingClient() {
		_ = st.CloseSend()
	}
	for {
		wait := quiet
		if len(out) < want {
			wait = sendTimeout / 3
		}
		select {
		case line, more := <-lines:
			if !more {
				return strings.Join(out, "\n")
			}
			out = append(out, line)
		case <-time.After(wait):
			if len(out) == 0 {
				return silent
			}
			return strings.Join(out, "\n")
		}
	}
}

// ask sends a request of HTTP.
func (s *side) ask(ctx context.Context, rest, body string) string {
	fields := strings.Fields(rest)
	r, err := http.NewRequestWithContext(ctx, fields[0], "http://"+s.addr+fields[1], strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for _, f := range fields[2:] {
		name, value, _ := strings.Cut(f, ":")
		r.Header.Set(name, value)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return "no answer: " + err.Error()
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, 1<<20))
	if err != nil {
		return "no answer: " + err.Error()
	}
	text := strings.TrimSpace(string(b))
	if strings.HasPrefix(text, "{") {
		text = compactJSON([]byte(text))
	}
	return fmt.Sprintf("%d %s %s", a.StatusCode, a.Header.Get("Content-Type"), text)
}

// connection sends bytes, and returns what a connection says until it ends or is quiet.
func (s *side) connection(send []byte) string {
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * quiet))
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = c.Write(send) }()
	defer func() { _ = c.Close(); <-sent }()
	if bytes.HasPrefix(send, []byte(http2.ClientPreface)) {
		return frames(c)
	}
	<-sent
	_ = c.(*net.TCPConn).CloseWrite()
	b, _ := io.ReadAll(io.LimitReader(c, 1<<20))
	if line, _, ok := bytes.Cut(b, []byte("\r\n")); ok && bytes.HasPrefix(b, []byte("HTTP")) {
		b = line
	}
	return fmt.Sprintf("%q", b)
}

// frames is what the frames of HTTP/2 say: answers, ends of streams, and the end of the connection.
func frames(c net.Conn) string {
	f := http2.NewFramer(io.Discard, c)
	var out []string
	decode := newDecoder()
	for {
		got, err := f.ReadFrame()
		if err != nil {
			if len(out) == 0 {
				out = append(out, "nothing is said")
			}
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				return strings.Join(append(out, "and the connection stays"), "\n")
			}
			return strings.Join(append(out, "and the connection ends"), "\n")
		}
		switch got := got.(type) {
		case *http2.GoAwayFrame:
			out = append(out, "GOAWAY "+got.ErrCode.String())
		case *http2.RSTStreamFrame:
			out = append(out, "RST_STREAM "+got.ErrCode.String())
		case *http2.HeadersFrame:
			out = append(out, decode(got.HeaderBlockFragment()))
		}
	}
}

// newDecoder returns what shows the headers of an answer that matter.
func newDecoder() func([]byte) string {
	d := hpack.NewDecoder(4096, nil)
	return func(block []byte) string {
		fields, err := d.DecodeFull(block)
		if err != nil {
			return err.Error()
		}
		out := "HEADERS"
		for _, f := range fields {
			switch f.Name {
			case ":status", "grpc-status", "grpc-message", "content-type":
				out += fmt.Sprintf(" %s=%s", f.Name, f.Value)
			}
		}
		return out
	}
}

// streams opens n watches at one time, and returns how many are created.
func (s *side) streams(ctx context.Context, n int) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := pb.NewWatchClient(s.conn)
	for k := range n {
		st, err := w.Watch(ctx)
		if err == nil {
			err = st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("streams")}}})
		}
		if err == nil {
			_, err = st.Recv()
		}
		if err != nil {
			return fmt.Sprintf("after %d: %s", k, told(err))
		}
	}
	return fmt.Sprintf("%d are created", n)
}

// connections opens n connections that say nothing, and asks for the version beside them.
func (s *side) connections(ctx context.Context, n int) string {
	var all []net.Conn
	defer func() {
		for _, c := range all {
			_ = c.Close()
		}
	}()
	for range n {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
		if err != nil {
			return err.Error()
		}
		all = append(all, c)
	}
	if _, err := s.cl.Get(ctx, "beside"); status.Code(err) != codes.OK {
		return "beside them: " + told(err)
	}
	return fmt.Sprintf("%d are open, and a read beside them is answered", n)
}
