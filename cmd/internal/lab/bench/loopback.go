package bench

import (
	"errors"
	"net"
)

// connect returns both ends of a new loopback connection. (Go sets TCP_NODELAY on both.)
func connect(listener net.Listener) (dialed, accepted *net.TCPConn, err error) {
	type result struct {
		conn net.Conn
		err  error
	}
	incoming := make(chan result, 1)
	go func() {
		conn, err := listener.Accept()
		incoming <- result{conn, err}
	}()
	out, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close(), (<-incoming).err)
	}
	in := <-incoming
	if in.err != nil {
		return nil, nil, errors.Join(in.err, out.Close())
	}
	return out.(*net.TCPConn), in.conn.(*net.TCPConn), nil
}
