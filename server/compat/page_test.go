package compat

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// The page of compatibility is made of what the tests compare. It knows of each RPC and field in which
// requests it is set, and whether the answers to them are equal. A row that is not among the differences is
// equal: the tests hold that.

const page = "../docs/compatibility.md"

// compared is a request that a test compares.
type compared struct {
	name    string
	request proto.Message
	why     string // the answers differ
}

// coverage is what is compared, by the name of a method, and of a field with its message.
type coverage map[protoreflect.FullName][]compared

func (c coverage) add(method protoreflect.FullName, r compared) {
	c[method] = append(c[method], r)
	if r.request != nil {
		c.walk(r.request.ProtoReflect(), r)
	}
}

func (c coverage) walk(m protoreflect.Message, r compared) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if list := c[f.FullName()]; len(list) == 0 || list[len(list)-1].name != r.name {
			c[f.FullName()] = append(list, r)
		}
		switch {
		case f.IsList() && f.Message() != nil:
			for k := range v.List().Len() {
				c.walk(v.List().Get(k).Message(), r)
			}
		case f.Message() != nil && !f.IsMap():
			c.walk(v.Message(), r)
		}
		return true
	})
}

// services are those of etcd's API, in the order of the page.
var services = []protoreflect.FullName{
	"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Lease", "etcdserverpb.Cluster", "etcdserverpb.Maintenance", "etcdserverpb.Auth",
	"v3lockpb.Lock", "v3electionpb.Election",
}

func methods(t *testing.T) (all []protoreflect.MethodDescriptor) {
	t.Helper()
	for _, name := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		of := d.(protoreflect.ServiceDescriptor).Methods()
		for k := range of.Len() {
			all = append(all, of.Get(k))
		}
	}
	return all
}

// covered gathers what is compared.
func covered(t *testing.T) coverage {
	t.Helper()
	c, paths := coverage{}, map[string]protoreflect.MethodDescriptor{}
	for _, m := range methods(t) {
		rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
			if r.GetPost() != "" {
				paths[r.GetPost()] = m
			}
		}
	}
	parse := func(m protoreflect.MethodDescriptor, text string) proto.Message {
		of, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		r := of.New().Interface()
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), r); err != nil {
			return nil // what is no request sets no field
		}
		return r
	}
	c.add("etcdserverpb.Watch.Watch", compared{"TestWatch", &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}, ""})
	c.add("etcdserverpb.Maintenance.Snapshot", compared{"snapshot", nil, noSnapshot}) // its answer is a file, and differs each time
	for _, r := range gatewayRows() {
		if m := paths[r.path]; m != nil && !strings.HasPrefix(r.path, "/v3/watch") {
			c.add(m.FullName(), compared{r.name, parse(m, r.body), differences[r.name]})
		}
	}
	for _, r := range rpcRows() {
		c.add(protoreflect.FullName(strings.ReplaceAll(r.method[1:], "/", ".")), compared{r.name, r.r, differences[r.name]})
	}
	for _, path := range []string{options, inputs} {
		all, err := readTable(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all.rows {
			lines, err := r.lines()
			if err != nil {
				t.Fatal(err)
			}
			words := strings.Fields(lines[0])
			var m protoreflect.MethodDescriptor
			switch words[0] {
			case "http":
				m = paths[words[2]]
			case "grpc":
				d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(full(words[1])[1:], "/", ".")))
				m, _ = d.(protoreflect.MethodDescriptor)
				_, body, _ := strings.Cut(lines[0], "{")
				lines[0] = "{" + body
				lines = append([]string{""}, lines...)
			}
			if m == nil {
				continue
			}
			for _, text := range lines[1:] {
				c.add(m.FullName(), compared{r.name, parse(m, text), r.why})
			}
		}
	}
	return c
}

// missing begins the verdict of an RPC that is not there.
const missing = "**not there**: "

// verdict says what the comparisons of an RPC or a field have shown.
func verdict(list []compared) string {
	equal := 0
	var why []string
	for _, r := range list {
		if r.why == "" {
			equal++
		} else if !slices.Contains(why, r.why) {
			why = append(why, r.why)
		}
	}
	switch {
	case len(list) == 0:
		return "**not compared**"
	case len(why) == 0:
		return fmt.Sprintf("same (%d)", equal)
	case equal == 0 && len(why) == 1 && notThere[why[0]]:
		return missing + why[0]
	case equal == 0:
		return "**differs**: " + strings.Join(why, "; ")
	}
	return fmt.Sprintf("same (%d), but: %s", equal, strings.Join(why, "; "))
}

func cell(s string) string {
	if len(s) > 160 {
		s = s[:120] + "…"
	}
	return strings.NewReplacer("|", `\|`, "\n", "<br>", "<", "&lt;").Replace(s)
}

// TestPage holds that the page says what the tests compare, and that each field of each request is compared.
func TestPage(t *testing.T) {
	c := covered(t)
	var b strings.Builder
	fmt.Fprintln(&b, "# Compatibility with etcd 3.7.3")
	fmt.Fprintln(&b, "\nMade by `go test ./server/compat -run TestPage -update` out of what the tests compare. Do not edit it.")
	fmt.Fprintln(&b, "\n*same (n)* says that n requests with that RPC, or with that field set, get the answers of etcd byte for byte, errors too.")
	fmt.Fprintln(&b, "Ids, terms, times, sizes and addresses are left out. What differs has a reason.")
	fmt.Fprintln(&b, "\n## RPCs and their fields")
	service := protoreflect.FullName("")
	for _, m := range methods(t) {
		if m.Parent().FullName() != service {
			service = m.Parent().FullName()
			fmt.Fprintf(&b, "\n### %s\n\n| RPC, field | answers |\n|---|---|\n", service)
		}
		fmt.Fprintf(&b, "| **%s** | %s |\n", m.Name(), cell(verdict(c[m.FullName()])))
		if !strings.HasPrefix(verdict(c[m.FullName()]), missing) {
			writeFields(t, &b, c, m.Input(), "")
		}
	}
	fmt.Fprintln(&b, "\n## Requests whose answers differ")
	fmt.Fprintln(&b, "\n| request | why |\n|---|---|")
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range differences {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "| %s | %s |\n", cell(name), cell(differences[name]))
	}
	writeClients(t, &b)
	writeInputs(t, &b)
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(page); err != nil || string(have) != b.String() {
		t.Errorf("%s is stale: go test ./server/compat -run TestPage -update (%v)", page, err)
	}
}

// writeFields writes a line for each field of a message, and of the messages in it, except those that are
// requests themselves.
func writeFields(t *testing.T, b *strings.Builder, c coverage, m protoreflect.MessageDescriptor, prefix string) {
	for k := range m.Fields().Len() {
		f := m.Fields().Get(k)
		name := prefix + string(f.Name())
		fmt.Fprintf(b, "| %s | %s |\n", name, cell(verdict(c[f.FullName()])))
		if len(c[f.FullName()]) == 0 {
			t.Errorf("%s is set in no request that is compared: add a row to %s", f.FullName(), options)
		}
		if inner := f.Message(); inner != nil && !slices.Contains([]protoreflect.Name{"TxnRequest", "RangeRequest", "PutRequest", "DeleteRangeRequest"}, inner.Name()) {
			writeFields(t, b, c, inner, name+".")
		}
	}
}

// writeClients writes which clients print the same, and what is answered differently to them.
func writeClients(t *testing.T, b *strings.Builder) {
	t.Helper()
	const dir = "../../tests/clients/"
	read := func(name string) []string {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	fmt.Fprintf(b, "\n## Clients\n\nEach of these programs prints the same on etcd and on the service (`tests/clients`).\n\n")
	for _, line := range read("README.md") {
		if strings.HasPrefix(line, "|") {
			fmt.Fprintln(b, line)
		}
	}
	fmt.Fprintf(b, "\nExcept:\n\n| command or request | why |\n|---|---|\n")
	for _, line := range read("differences.txt") {
		if name, why, ok := strings.Cut(line, " | "); ok && !strings.HasPrefix(line, "#") {
			fmt.Fprintf(b, "| %s | %s |\n", cell(name), cell(why))
		}
	}
}

// writeInputs writes the table of bad requests.
func writeInputs(t *testing.T, b *strings.Builder) {
	t.Helper()
	all, err := readTable(inputs)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "\n## Bad requests\n\nWhat is sent is in `server/compat/testdata/inputs.txt`.\n\n| request | etcd answers | here |\n|---|---|---|\n")
	for _, r := range all.rows {
		if r.prepares() {
			continue
		}
		here := "same"
		if r.why != "" {
			here = strings.Join(r.here, "\n") + " (" + r.why + ")"
			if len(here) > 160 {
				here = "differs: " + r.why
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", cell(r.name), cell(strings.Join(r.etcd, "\n")), cell(here))
	}
}
