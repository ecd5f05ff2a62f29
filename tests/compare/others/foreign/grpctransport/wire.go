package grpctransport

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/transport"
)

// The service has one method, a stream of messages from the sender. The first message is
//
//	receiver u64 │ class u8 │ introduction
//
// and each later one is
//
//	kind u8 │ body
//
// Integers are big-endian. The codec of gRPC passes bytes through: they are encoded already.

const (
	helloBytes = 9
	// maxMessageBytes is the largest body with its kind.
	maxMessageBytes = transport.DefaultFrameBytes + 1
	serviceName     = "millrace.lab.Transport"
	methodOf        = "/" + serviceName + "/Send"
)

var streamDesc = grpc.StreamDesc{
	StreamName: "Send", ClientStreams: true,
	Handler: func(t any, stream grpc.ServerStream) error { return t.(*Transport).serve(stream) },
}

var service = grpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{streamDesc}}

func hello(to uint64, class transport.Class, self transport.Introduction) []byte {
	return self.Append(append(binary.BigEndian.AppendUint64(nil, to), byte(class)))
}

func readHello(b []byte) (to uint64, class transport.Class, from transport.Introduction, err error) {
	if len(b) < helloBytes || b[8] >= transport.Classes {
		return 0, 0, from, errors.New("the first message of a stream is no introduction")
	}
	from, err = transport.DecodeIntroduction(b[helloBytes:])
	return binary.BigEndian.Uint64(b), transport.Class(b[8]), from, err
}

// message returns the message of a body, which is copied.
func message(kind transport.Kind, body []byte) []byte {
	return append(append(make([]byte, 0, len(body)+1), byte(kind)), body...)
}

func kindOf(message []byte) transport.Kind { return transport.Kind(message[0]) }

// readMessage returns the body of a message, whose kind must belong to the class of its stream.
func readMessage(b []byte, class transport.Class) (kind transport.Kind, body []byte, err error) {
	if len(b) == 0 || b[0] >= transport.Kinds || transport.Kind(b[0]).Class() != class {
		return 0, nil, fmt.Errorf("a message of %d bytes has no kind of class %v", len(b), class)
	}
	return kindOf(b), b[1:], nil
}

// A refused directory is told apart by its code.
const directoryRefused = codes.FailedPrecondition

func refusalStatus(err error) error {
	var refused *transport.DirectoryRefused
	if errors.As(err, &refused) {
		return status.Error(directoryRefused, refused.Why)
	}
	return status.Error(codes.PermissionDenied, err.Error())
}

// refusal returns the error of the receiver from that of a stream.
func refusal(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() == directoryRefused {
		return &transport.DirectoryRefused{Why: s.Message()}
	}
	return err
}

// codec passes bytes through: messages are *[]byte.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "millrace-bytes" }

// Marshal implements encoding.CodecV2. The bytes are never changed afterwards.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
