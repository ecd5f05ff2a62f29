package page

import (
	"context"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browsers are names of programs that render a page without a window.
var browsers = []string{"chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable"}

func browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a browser")
	}
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("none of %s is installed; the tests above have read the page without a browser", strings.Join(browsers, ", "))
	return ""
}

// render runs the browser on a page without a network: every name fails to resolve.
func render(t *testing.T, file string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args = append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--hide-scrollbars",
		"--host-resolver-rules=MAP * ~NOTFOUND", "--user-data-dir=" + t.TempDir(), "--window-size=1500,4000",
	}, args...)
	cmd := exec.CommandContext(ctx, browser(t), append(args, "file://"+file)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// A browser without a network draws the charts: the colours of the three lines, and those of the map, are in
// its picture of the page, on light and on dark ground. And it prints.
func TestBrowserDrawsThePage(t *testing.T) {
	browser(t)
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(pageOf(t, "browser", swept(t))), 0o644); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]struct {
		flag   string
		ground color.RGBA
		lines  []color.RGBA
	}{
		"light": {"--blink-settings=preferredColorScheme=1", color.RGBA{255, 255, 255, 255}, []color.RGBA{{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x9e, 0x73, 255}}},
		"dark":  {"--blink-settings=preferredColorScheme=0", color.RGBA{0x14, 0x17, 0x1b, 255}, []color.RGBA{{0x56, 0xb4, 0xe9, 255}, {0xff, 0x91, 0x42, 255}, {0x2f, 0xd3, 0xa0, 255}}},
	} {
		shot := filepath.Join(t.TempDir(), mode+".png")
		render(t, file, want.flag, "--screenshot="+shot)
		count := colours(t, shot)
		if count[want.ground] < 1_000_000 {
			t.Errorf("%s: %d pixels are of the ground", mode, count[want.ground])
		}
		for i, line := range want.lines {
			if count[line] < 500 {
				t.Errorf("%s: %d pixels have the colour of line %d", mode, count[line], i)
			}
		}
		if len(count) < 300 {
			t.Errorf("%s: %d colours; the map alone has more", mode, len(count))
		}
	}
	pdf := filepath.Join(t.TempDir(), "page.pdf")
	render(t, file, "--print-to-pdf="+pdf)
	if text, err := os.ReadFile(pdf); err != nil || !strings.HasPrefix(string(text), "%PDF") || len(text) < 20_000 {
		t.Errorf("printed %d bytes, %v", len(text), err)
	}
}

// colours counts the pixels of each colour in a picture.
func colours(t *testing.T, file string) map[color.RGBA]int {
	t.Helper()
	if *keep != "" {
		if text, err := os.ReadFile(file); err == nil {
			_ = os.WriteFile(filepath.Join(*keep, filepath.Base(file)), text, 0o644) // to look at
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	count := map[color.RGBA]int{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			count[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	return count
}
