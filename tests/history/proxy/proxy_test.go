package proxy

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestProxy: bytes pass, are held and arrive late and in order, and connections break.
func TestProxy(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	p, err := New(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange := func(text string) error {
		if _, err := c.Write([]byte(text)); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, len(text)))
		return err
	}
	if err := exchange("one"); err != nil {
		t.Fatal(err)
	}
	p.Set(Holding)
	answered := make(chan error, 1)
	go func() { answered <- exchange("two") }()
	select {
	case err := <-answered:
		t.Fatalf("an answer (%v) passed a proxy that holds", err)
	default:
	}
	p.Set(Passing)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	p.Set(Refusing)
	if err := exchange("three"); err == nil {
		t.Fatal("a connection lives on in a proxy that refuses")
	}
	p.Set(Passing)
	if c, err = net.Dial("tcp", p.Address()); err != nil {
		t.Fatal(err)
	}
	if err := exchange("four"); err != nil {
		t.Fatal(err)
	}
	p.Limit(1 << 10)
	began := time.Now()
	for range 4 { // 128 bytes, there and back
		if err := exchange(string(make([]byte, 128))); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("1 KiB passed in %v a limit of 1 KiB a second", took)
	}
}
