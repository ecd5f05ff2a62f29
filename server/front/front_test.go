package front

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/millrace/millrace/server/config"
)

// kv answers puts with the common name of the client's certificate, when it is released.
type kv struct {
	pb.UnimplementedKVServer
	began, release chan struct{}
}

func (k *kv) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if k.began != nil {
		k.began <- struct{}{}
		<-k.release
	}
	name := "anonymous"
	if p, _ := peer.FromContext(ctx); p != nil {
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			name = "someone"
			for _, c := range t.State.PeerCertificates {
				name = c.Subject.CommonName
			}
		}
	}
	return &pb.PutResponse{PrevKv: nil, Header: &pb.ResponseHeader{Revision: int64(len(name))}}, nil
}

func start(t *testing.T, k *kv, args ...string) *Front {
	t.Helper()
	l, err := config.Load(append([]string{"--listen-client-urls=http://127.0.0.1:0"}, args...), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "page %s", r.URL.Path) })
	f, err := Open(l.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Pages: pages, Metrics: pages, Register: func(s grpc.ServiceRegistrar) { pb.RegisterKVServer(s, k) }}
	if err := f.Serve(o, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		f.Close(ctx)
	})
	return f
}

func put(t *testing.T, addr string, creds credentials.TransportCredentials) (int64, error) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

// TestOnePort sends gRPC, the gateway's JSON and a page to one port.
func TestOnePort(t *testing.T) {
	f := start(t, &kv{})
	addr := f.Addrs()[0].String()
	if n, err := put(t, addr, insecure.NewCredentials()); n != int64(len("anonymous")) || err != nil {
		t.Errorf("gRPC: %d, %v", n, err)
	}
	if have := get(t, http.DefaultClient, "http://"+addr+"/health"); have != "page /health" {
		t.Errorf("page: %q", have)
	}
	r, err := http.Post("http://"+addr+"/v3/kv/put", "application/json", strings.NewReader(`{"key":"Zm9v"}`))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r.Body)
	if !strings.Contains(string(b), `"revision":"9"`) {
		t.Errorf("gateway: %s", b)
	}
	if have := r.Header.Get("Access-Control-Allow-Origin"); have != "*" {
		t.Errorf("CORS: %q", have)
	}
	conn, err := f.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, serving := range []bool{false, true} {
		f.SetServing(serving)
		r, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || (r.Status == grpc_health_v1.HealthCheckResponse_SERVING) != serving {
			t.Errorf("health: %v, %v", r, err)
		}
	}
}

// TestGarbage holds that bytes of no protocol end their connection and nothing else.
func TestGarbage(t *testing.T) {
	f := start(t, &kv{})
	addr := f.Addrs()[0].String()
	for _, row := range []struct{ send, want string }{
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("x", 100), ""}, // gRPC ends it, perhaps after its settings
		{"\x00\x01\x02\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 505"},
		{"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK"}, // begins as the preface does
		{"GET /x HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", "HTTP/1.1 431"},
		{"PR", ""},
		{"", ""},
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, row.send)
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		line, err := bufio.NewReader(c).ReadString('\n')
		if row.want != "" && !strings.HasPrefix(line, row.want) {
			t.Errorf("%.20q: have %q, %v, want %q", row.send, line, err, row.want)
		}
		_ = c.Close()
	}
	if n, err := put(t, addr, insecure.NewCredentials()); n == 0 || err != nil {
		t.Errorf("after garbage: %d, %v", n, err)
	}
}

func TestHostsAndOrigins(t *testing.T) {
	f := start(t, &kv{}, "--host-whitelist=good", "--cors=http://a.example")
	addr := f.Addrs()[0].String()
	for _, row := range []struct {
		method, host, origin string
		status               int
		allow                string
	}{
		{"GET", "good:1", "http://a.example", 200, "http://a.example"},
		{"GET", "good", "http://b.example", 200, ""},
		{"OPTIONS", "good", "http://a.example", 200, "http://a.example"},
		{"GET", "evil", "", 421, ""},
	} {
		r, _ := http.NewRequest(row.method, "http://"+addr+"/", nil)
		r.Host = row.host
		r.Header.Set("Origin", row.origin)
		a, err := http.DefaultClient.Do(r)
		if err != nil || a.StatusCode != row.status || a.Header.Get("Access-Control-Allow-Origin") != row.allow {
			t.Errorf("%+v: %v, %v", row, a, err)
		}
	}
}

// TestSplit holds that HTTP URLs serve no gRPC, and client URLs no HTTP then.
func TestSplit(t *testing.T) {
	f := start(t, &kv{}, "--listen-client-http-urls=http://127.0.0.1:0")
	rpc, web := f.Addrs()[0].String(), f.Addrs()[1].String()
	if _, err := put(t, rpc, insecure.NewCredentials()); err != nil {
		t.Error(err)
	}
	if have := get(t, http.DefaultClient, "http://"+web+"/x"); have != "page /x" {
		t.Error(have)
	}
	if _, err := put(t, web, insecure.NewCredentials()); err == nil {
		t.Error("the HTTP port serves gRPC")
	}
	if r, err := http.Get("http://" + rpc + "/x"); err == nil && r.StatusCode == 200 {
		t.Error("the gRPC port serves HTTP")
	}
}

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t *testing.T) *authority {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte{1}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := x509.ParseCertificate(der)
	return &authority{c, key, 2}
}

// write makes a certificate and writes it with its key.
func (a *authority) write(t *testing.T, dir, file, name string) tls.Certificate {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	a.next++
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, _ := x509.MarshalECPrivateKey(key)
	c, k := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	for path, b := range map[string][]byte{file + ".pem": c, file + "-key.pem": k, "ca.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})} {
		if err := os.WriteFile(filepath.Join(dir, path), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, _ := tls.X509KeyPair(c, k)
	return pair
}

// TestTLS holds ALPN, certificates of clients, revocation, and that files are read again.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t)
	ca.write(t, dir, "server", "first")
	client, revoked := ca.write(t, dir, "client", "alice"), ca.write(t, dir, "revoked", "mallory")
	crl, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(4), RevocationTime: time.Now()}}}, ca.cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(dir+"/crl.pem", pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: crl}), 0o600)
	f := start(t, &kv{}, "--listen-client-urls=https://127.0.0.1:0", "--cert-file="+dir+"/server.pem", "--key-file="+dir+"/server-key.pem",
		"--trusted-ca-file="+dir+"/ca.pem", "--client-cert-auth", "--client-crl-file="+dir+"/crl.pem")
	addr := f.Addrs()[0].String()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	as := func(pairs ...tls.Certificate) *tls.Config { return &tls.Config{RootCAs: roots, Certificates: pairs} }

	if n, err := put(t, addr, credentials.NewTLS(as(client))); n != int64(len("alice")) || err != nil {
		t.Errorf("gRPC with a certificate: %d, %v", n, err)
	}
	for name, c := range map[string]*tls.Config{"without": as(), "revoked": as(revoked)} {
		if _, err := put(t, addr, credentials.NewTLS(c)); err == nil {
			t.Errorf("gRPC %s certificate is served", name)
		}
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: as(client), ForceAttemptHTTP2: true}}
	if have := get(t, web, "https://"+addr+"/p"); have != "page /p" {
		t.Errorf("a client that offers h2 and http/1.1: %q", have)
	}
	presented := func() string {
		c, err := tls.Dial("tcp", addr, as(client))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if have := presented(); have != "first" {
		t.Fatal(have)
	}
	_ = os.WriteFile(dir+"/server.pem", []byte("half a file"), 0o600)
	<-time.After(lookInterval + 100*time.Millisecond)
	if have := presented(); have != "first" {
		t.Errorf("after a bad file: %q", have)
	}
	ca.write(t, dir, "server", "second")
	<-time.After(lookInterval + 100*time.Millisecond)
	if have := presented(); have != "second" {
		t.Errorf("after a new file: %q", have)
	}
}

// TestDrain holds that a request under way gets its answer, and that a new one finds no server.
func TestDrain(t *testing.T) {
	k := &kv{began: make(chan struct{}), release: make(chan struct{})}
	f := start(t, k)
	addr := f.Addrs()[0].String()
	answers := make(chan error, 1)
	go func() {
		_, err := put(t, addr, insecure.NewCredentials())
		answers <- err
	}()
	<-k.began
	closed := make(chan struct{})
	go func() { f.Close(t.Context()); close(closed) }()
	for {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(k.release)
	if err := <-answers; err != nil {
		t.Error(err)
	}
	<-closed
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	start(t, &kv{}, "--listen-client-urls=unix://"+path)
	if _, err := put(t, "unix://"+path, insecure.NewCredentials()); err != nil {
		t.Error(err)
	}
}
