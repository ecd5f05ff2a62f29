package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// link takes messages from one node to another: a length of 4 bytes and a protobuf message, all that waits in
// one write. Its queue has no bound of its own: the library sends no more than its window and the clients'
// outstanding writes.
type link struct {
	out, in net.Conn

	mu    sync.Mutex
	queue []*pb.Message
	wake  chan struct{}
}

const (
	lengthBytes     = 4
	readBytes       = 256 << 10
	maxMessageBytes = 1 << 30
)

func (l *link) push(m *pb.Message) {
	l.mu.Lock()
	l.queue = append(l.queue, m)
	l.mu.Unlock()
	notify(l.wake)
}

// notify leaves a token that says "look again". One waiting token is enough.
func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// send writes until quit is closed.
func (l *link) send(quit <-chan struct{}) error {
	var buf []byte
	for {
		select {
		case <-l.wake:
		case <-quit:
			return nil
		}
		l.mu.Lock()
		queue := l.queue
		l.queue = nil
		l.mu.Unlock()
		buf = buf[:0]
		for _, m := range queue {
			start := len(buf)
			buf = append(buf, 0, 0, 0, 0)
			var err error
			if buf, err = (proto.MarshalOptions{}).MarshalAppend(buf, m); err != nil {
				return err
			}
			binary.LittleEndian.PutUint32(buf[start:], uint32(len(buf)-start-lengthBytes))
		}
		if _, err := l.out.Write(buf); err != nil {
			return unless(quit, err)
		}
	}
}

// receive hands to a node what arrives, until quit is closed.
func (l *link) receive(to *node, quit <-chan struct{}) error {
	in := bufio.NewReaderSize(l.in, readBytes)
	var buf []byte
	for {
		var length [lengthBytes]byte
		if _, err := io.ReadFull(in, length[:]); err != nil {
			return unless(quit, err)
		}
		n := int(binary.LittleEndian.Uint32(length[:]))
		if n > maxMessageBytes {
			return io.ErrUnexpectedEOF
		}
		if n > cap(buf) {
			buf = make([]byte, n)
		}
		if _, err := io.ReadFull(in, buf[:n]); err != nil {
			return unless(quit, err)
		}
		m := &pb.Message{}
		if err := proto.Unmarshal(buf[:n], m); err != nil {
			return err
		}
		to.receive(m)
	}
}

// unless drops the error of a connection that was closed on purpose.
func unless(quit <-chan struct{}, err error) error {
	select {
	case <-quit:
		return nil
	default:
		return err
	}
}

func (l *link) close() {
	_ = l.out.Close() // ends the goroutines that read or write it
	_ = l.in.Close()
}
