#!/usr/bin/env python3
"""Opens the pages of inspect --html and report --html in a headless browser.

usage: page_in_browser_test.py PROGRAM FAKE_NVRTC PICTURES
Exit 77 where there is no browser (apt-get install chromium).

One browser opens all pages. A script does in a page what a reader would, and returns what it saw. What a phone shows of a page is kept in
the folder PICTURES.
"""
import base64
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, FAKE_NVRTC, PICTURES = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
PHONE = 375  # its width
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

# What nvdisasm would print of a kernel: lines 912 and 930 of the source, 930 calls 912.
SASS = """.text.kernel:
\t//## File "k.cu", line 930
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "k.cu", line 912 inlined at "k.cu", line 930
\t//## File "k.cu", line 930
        /*0010*/                   FMUL R2, R1, R1 ;
        /*0020*/                   FADD R2, R2, R1 ;
\t//## File "k.cu", line 930
        /*0030*/                   EXIT ;
"""

PROBLEM = ["--arch", "sm_86", "fwd", "fp16", "num_heads=8:2", "seqlen=1000", "causal"]


class Browser:
    """Chromium without a window, asked through a pipe (DevTools protocol)."""

    def __init__(self, profile):
        ours, theirs = os.pipe(), os.pipe()
        self.requests, self.answers = ours[1], theirs[0]
        # The browser reads 3 and writes 4, whatever numbers the pipes have here.
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (ours[0], theirs[1]))
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(command, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=lambda: (os.dup2(read, 3), os.dup2(write, 4)))
        for end in (read, write, ours[0], theirs[1]):
            os.close(end)
        self.count, self.unread, self.events = 0, b"", []
        # One window, and with it one process that draws, for all pages.
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable", self.session)
        self.call("Page.setLifecycleEventsEnabled", self.session, enabled=True)

    def close(self):
        self.call("Browser.close")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        os.close(self.requests)
        os.close(self.answers)

    def message(self):
        """The next one, an answer or an event."""
        while b"\0" not in self.unread:
            if not select.select([self.answers], [], [], 110)[0]:
                raise AssertionError("the browser says nothing")
            read = os.read(self.answers, 1 << 20)
            if not read:
                raise AssertionError("the browser has ended")
            self.unread += read
        text, self.unread = self.unread.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        """The result of a method; events that come before it are kept."""
        self.count += 1
        request = {"id": self.count, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.requests, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.count:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def navigate(self, session, path):
        """Until the page is loaded, with all that it loads."""
        loader = self.call("Page.navigate", session, url=path.as_uri())["loaderId"]

        def is_loaded(event):
            return (event["method"] == "Page.lifecycleEvent" and event["params"]["loaderId"] == loader
                    and event["params"]["name"] == "load")

        while not any(map(is_loaded, self.events)):
            self.events.append(self.message())

    def seen(self, path, script, dark, width, picture):
        """What `script`, the body of a function, returns in the page, and the errors that were reported meanwhile. A phone's picture is
        written to the path `picture`."""
        self.events, session = [], self.session
        self.call("Emulation.setDeviceMetricsOverride", session, width=width, height=900, deviceScaleFactor=1, mobile=width == PHONE)
        self.call("Emulation.setEmulatedMedia", session,
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.navigate(session, path)
        done = self.call("Runtime.evaluate", session, expression=f"(() => {{{script}}})()", returnByValue=True)
        if width == PHONE:
            taken = self.call("Page.captureScreenshot", session, captureBeyondViewport=True)
            picture.write_bytes(base64.b64decode(taken["data"]))
        reported = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        errors = [event for event in self.events if event["method"] in reported]
        return done["result"].get("value"), errors + [done[key] for key in ("exceptionDetails",) if key in done]


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="attnforge_page_")
        cls.root = pathlib.Path(cls.folder.name)
        tool = cls.root / "nvdisasm"
        (cls.root / "sass.txt").write_text(SASS)
        tool.write_text(f"#!/bin/sh\nexec cat '{cls.root}/sass.txt'\n")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        cls.environment = dict(os.environ, ATTNFORGE_NVRTC=FAKE_NVRTC, ATTNFORGE_CACHE=str(cls.root / "cache.db"),
                               PATH=f"{cls.root}:{os.environ['PATH']}", CUDA_VISIBLE_DEVICES="", ATTNFORGE_SHIPPED_WINNERS="0")
        PICTURES.mkdir(parents=True, exist_ok=True)
        cls.pictures = 0
        cls.fill_database()
        cls.browser = Browser(cls.root / "profile")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    @classmethod
    def run_program(cls, *arguments):
        done = subprocess.run([PROGRAM, *arguments], env=cls.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{arguments}: {done.stderr}")
        return done.stdout

    @classmethod
    def fill_database(cls):
        shown = json.loads(cls.run_program("inspect", "--json", "--no-compile", "--candidates", "6", *PROBLEM))
        device = shown["device"]
        lines = []
        for i, candidate in enumerate(shown["candidates"]):
            lines.append(json.dumps({
                "kind": "try", "format": 1, "problem": shown["measured_as"],
                "device_class": f"{device['name']} {device['arch']} sms={device['num_sms']} memory_clock_mhz="
                                f"{device['memory_clock_mhz']} l2_bytes={device['l2_bytes']}",
                "config": candidate["config"], "digest": shown["digest"], "family": candidate["config"].split()[0],
                "rigor": "full", "estimate_us": candidate["estimate_us"], "estimated": False,
                "status": "compile_error" if i == 4 else "ok", "time_us": 0 if i == 4 else 50 - 3 * i, "noise": 0.01, "samples": 9,
                "max_error": 0, "clock_mhz": 0, "detail": "<img src=x onerror=console.error(1)>", "driver": "13000", "nvrtc": "13.0",
                "uuid": "", "attnforge_version": "0", "measured_at": "2026-01-02T03:04:05Z"}))
        lines.append(lines[0].replace(json.loads(lines[0])["config"], "</script><b>x</b> a=1").replace('"time_us": 50', '"time_us": 70'))
        path = cls.root / "export.jsonl"
        path.write_text("\n".join(lines) + "\n")
        cls.run_program("cache", "import", str(path))

    def open(self, page, script, dark=False, width=1400):
        """What `script` returns in the page; no error may be reported meanwhile."""
        path = self.root / "page.html"
        path.write_text(page)
        type(self).pictures += 1
        picture = PICTURES / f"{self.id().rpartition('.test_')[2]}_{self.pictures}.png"
        seen, errors = self.browser.seen(path, script, dark, width, picture)
        if width == PHONE:
            self.assertEqual(struct.unpack(">I", picture.read_bytes()[16:20])[0], PHONE, "its picture is as wide as the phone")
        self.assertEqual(errors, [])
        return seen

    def inspect_page(self, *words):
        return self.run_program("inspect", "--html", "-", *(words or PROBLEM))

    def test_every_section_is_drawn_wide_and_narrow_light_and_dark(self):
        page = self.inspect_page()
        for width, dark in ((1400, False), (PHONE, True)):
            seen = self.open(page, """
              return {paper: getComputedStyle(document.body).backgroundColor,
                      overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
                      sections: [...document.querySelectorAll('main > section')].map(s => [s.id, s.textContent.length]),
                      pictures: document.querySelectorAll('svg.picture').length,
                      wider: [...document.querySelectorAll('.wider')].map(e => [!e.hidden, e.nextSibling.scrollWidth > e.nextSibling.clientWidth]),
                      unnamed: [...document.querySelectorAll('button, select, input')].filter(
                        e => !e.textContent && !e.getAttribute('aria-label') && !e.closest('label')).length};""", dark, width)
            self.assertEqual(seen["paper"], "rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)")
            self.assertLessEqual(seen["overflow"], 0, "the page scrolls sideways")
            self.assertEqual(len(seen["sections"]), 9)
            for name, length in seen["sections"]:
                self.assertGreater(length, 60, name)
            self.assertEqual(seen["pictures"], 4, "mask, timeline, roofline, tries")
            self.assertEqual([said for said, is_wider in seen["wider"]], [is_wider for said, is_wider in seen["wider"]], "who scrolls says so")
            self.assertTrue(width != PHONE or any(said for said, _ in seen["wider"]))
            self.assertEqual(seen["unnamed"], 0)

    FACTS = """
      const fact = name => [...document.querySelectorAll('#glance dt')].find(e => e.textContent === name).nextSibling.firstChild.textContent;
      const text = id => document.querySelector('#' + id).textContent;
      const rings = () => document.querySelectorAll('#tries .ring').length;
    """

    def test_backward_is_described_by_its_main_launch_and_its_tiles_of_keys(self):
        words = ["--arch", "sm_90a", "bwd", "bf16", "num_heads=8:2", "seqlen=1000:2000", "head_dim=128", "causal"]
        shown = json.loads(self.run_program("inspect", "--json", "--no-compile", *words))
        main, = [each for each in shown["launches"] if each["role"] == "main"]
        self.assertGreater(main["smem_bytes"], 100 << 10)
        seen = self.open(self.inspect_page(*words), self.FACTS + """
          const select = document.querySelector('#tries select'), drawn = [[select.value, rings()]];
          for (const option of select.options) {
            select.value = option.value;
            select.dispatchEvent(new Event('change'));
            drawn.push([option.value, rings()]);
          }
          return {memory: fact('Shared memory'), launch: text('launch'), mask: text('mask'), drawn};""")
        self.assertEqual(seen["memory"], f"{round(main['smem_bytes'] / 1024)} KiB")
        tiles = -(-2000 // shown["tiles"]["block_n"])
        self.assertIn(f"One head: {tiles} tiles of {shown['tiles']['block_n']} keys", seen["mask"])
        self.assertIn(f"{2 * tiles} tiles of keys: ", seen["launch"], "of two K/V heads")
        self.assertEqual({rings for _, rings in seen["drawn"]}, {1}, seen["drawn"])

    def test_split_keys_are_blocks_of_their_own(self):
        words = ["--arch", "sm_80", "fwd", "bf16", "num_heads=32:8", "seqlen=1:8192", "head_dim=128"]
        shown = json.loads(self.run_program("inspect", "--json", "--no-compile", *words))
        splits = int(re.search(r"num_splits=(\d+)", shown["config"]).group(1))
        self.assertGreater(splits, 1)
        main = shown["launches"][0]
        seen = self.open(self.inspect_page(*words), self.FACTS + "return {memory: fact('Shared memory'), launch: text('launch')};")
        self.assertEqual(seen["memory"], f"{round(main['smem_bytes'] / 1024)} KiB")
        self.assertIn(f"8 tiles of queries, the keys of each in {splits} splits", seen["launch"])
        self.assertIn("Each block has one.", seen["launch"])

    def test_blocks_have_shares_of_keys(self):
        words = ["--arch", "sm_90a", "fwd", "bf16", "batch=17", "num_heads=32:8", "seqlen=1:8192", "head_dim=128"]
        shown = json.loads(self.run_program("inspect", "--json", "--no-compile", *words))
        self.assertIn("grid=3", shown["config"])
        seen = self.open(self.inspect_page(*words), self.FACTS + "return {launch: text('launch')};")
        self.assertIn("136 tiles of queries: ", seen["launch"])
        self.assertIn("Blocks have equal shares of the keys of all tiles", seen["launch"])

    def test_a_text_is_counted_and_below_the_roof(self):
        problem = ["--arch", "sm_90a", "fwd", "bf16", "num_heads=16", "seqlen=4096", "head_dim=128"]
        script = self.FACTS + "return {rate: fact('Throughput'), work: fact('Work'), mask: text('mask'), roof: text('roofline')};"
        seen = self.open(self.inspect_page("--mask", "k <= q && q - k < 1024", *problem), script)
        self.assertEqual(seen["work"], "30.07 GFLOP")
        self.assertLess(float(seen["rate"].split()[0]), 1000, "the chip has 1071")
        share = float(re.search(r"visited, ([\d.]+)%", seen["mask"]).group(1))
        self.assertTrue(20 < share < 30, seen["mask"])
        seen = self.open(self.inspect_page("--mask", "k <= q && [&] { return k % 2 == 0; }()", *problem), script)
        self.assertEqual(seen["rate"], "-")
        self.assertIn('it has "["', seen["work"])
        self.assertIn("Not known: its mask text is not counted", seen["roof"])
        self.assertIn("as far as the window says", seen["mask"])

    def test_a_click_on_a_column_sorts(self):
        seen = self.open(self.inspect_page(), """
          const table = document.querySelector('#tries table'), head = table.querySelector('th');
          const column = () => [...table.querySelectorAll('tbody tr')].map(row => row.children[0].textContent);
          const result = [];
          for (let i = 0; i < 2; ++i) {
            head.querySelector('button').click();
            result.push([head.getAttribute('aria-sort'), column()]);
          }
          return result;""")
        times = ["35.00", "41.00", "44.00", "47.00", "50.00", "70.00"]
        self.assertEqual(seen[0], ["ascending", times + ["-"]])
        self.assertEqual(seen[1], ["descending", times[::-1] + ["-"]])

    def test_configs_are_shown_in_words_and_in_full_on_demand(self):
        page = self.inspect_page()
        config = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))["inspect"]["config"]
        seen = self.open(page, """
          const cell = () => document.querySelector('#candidates tr.chosen td:last-child');
          const result = {chosen: document.querySelector('#choice p').textContent, row: cell().textContent,
                          tip: cell().firstChild.title, open: document.querySelector('#choice details').open,
                          full: document.querySelector('#choice details code').textContent};
          document.querySelector('#tries .dot.pick').dispatchEvent(new MouseEvent('click'));
          result.picked = document.querySelector('#tries .readout summary').textContent;
          const select = document.querySelector('#candidates select');
          select.value = select.options[1].value;
          select.dispatchEvent(new Event('change'));
          result.columns = [...document.querySelectorAll('#candidates table:first-of-type th button')].map(each => each.textContent);
          return result;""")
        self.assertRegex(seen["chosen"], r"^fwd_mma_sm80 \d+ x \d+ keys.*, \d warps")
        self.assertEqual((seen["row"], seen["tip"]), (seen["chosen"], config))
        self.assertEqual((seen["open"], seen["full"]), (False, config))
        self.assertRegex(seen["picked"], r"^fwd_mma_sm80 \d+ x \d+ keys")
        self.assertIn("block_n", seen["columns"], "fields are columns when asked for")

    def test_lines_are_linked_both_ways(self):
        page = self.inspect_page()
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
        self.assertEqual(data["no_sass"], "")
        seen = self.open(page, """
          const [source, code] = document.querySelectorAll('#code .pane');
          const marked = pane => [...pane.querySelectorAll('li.marked')].map(li => [...pane.firstChild.children].indexOf(li));
          const outer = pane => [...pane.querySelectorAll('li.outer')].map(li => [...pane.firstChild.children].indexOf(li));
          const shown = (pane, line) => {
            const box = pane.getBoundingClientRect(), at = line.getBoundingClientRect();
            return at.top >= box.top && at.bottom <= box.bottom;
          };
          const result = {first: marked(source), firstShown: shown(source, source.querySelector('li.marked'))};
          source.querySelectorAll('li')[911].click();
          result.inner = marked(code);
          source.querySelectorAll('li')[929].click();
          result.outer = marked(code);
          code.querySelectorAll('li')[2].click();
          result.back = [marked(source), outer(source), shown(source, source.querySelector('li.marked'))];
          source.querySelectorAll('li')[0].click();
          result.still = marked(source);
          source.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown', bubbles: true}));
          result.key = marked(source);
          return result;""")
        self.assertEqual((seen["first"], seen["firstShown"]), ([911], True), "it begins with the line of most instructions")
        self.assertEqual(seen["inner"], [2, 3])
        self.assertEqual(seen["outer"], [1, 2, 3, 4], "with what was inlined into it")
        self.assertEqual(seen["back"], [[911], [929], True])
        self.assertEqual(seen["still"], [911], "a line without code is no link")
        self.assertEqual(len(seen["key"]), 1)

    def test_hostile_texts_are_shown_as_text(self):
        for page in (self.inspect_page(), self.run_program("report", "--html", "-")):
            seen = self.open(page, "return [document.querySelectorAll('img, b').length, document.scripts.length];")
            self.assertEqual(seen, [0, 2])

    def test_walks_visit_the_tiles_that_hold_a_key_that_is_seen(self):
        seen = self.open(self.inspect_page(), """
          const wrong = [];
          for (const [q, kv] of [[1, 1], [1, 300], [100, 100], [130, 70], [70, 130], [64, 64]])
            for (const [left, right] of [[-1, -1], [-1, 0], [20, 0], [20, 30], [0, 0], [5, -1]])
              for (const [block_m, block_n, pack_gqa] of [[64, 64, 1], [16, 32, 1], [64, 48, 4]]) {
                const tiles = {block_m, block_n, pack_gqa};
                walks({seqlen_q: q, seqlen_kv: kv}, {left, right}, tiles).forEach(walk => {
                  for (let tile = 0; tile * block_n < kv + block_n; ++tile) {
                    let any = false, all = (tile + 1) * block_n <= kv;
                    for (let row = walk.first; row <= walk.last; ++row)
                      for (let key = tile * block_n; key < Math.min((tile + 1) * block_n, kv); ++key) {
                        const at = key - (row + kv - q), sees = (left < 0 || at >= -left) && (right < 0 || at <= right);
                        any = any || sees;
                        all = all && sees;
                      }
                    const visited = tile >= walk.from && tile < walk.to, clear = tile >= walk.fullFrom && tile < walk.fullTo;
                    if ((any && !visited) || all !== clear) wrong.push([q, kv, left, right, block_m, block_n, tile, any, visited, all, clear]);
                  }
                });
              }
          return wrong.slice(0, 5);""")
        self.assertEqual(seen, [])

    def test_a_schedule_gives_every_tile_to_one_place_and_no_two_at_a_time(self):
        seen = self.open(self.inspect_page(), """
          const walk = tiles => ({from: 0, to: tiles});
          const list = [walk(1), walk(5), walk(3)], order = tilesInOrder(list, 4, true);
          const result = [];
          for (const isStatic of [false, true]) {
            const plan = schedule(list, order, 3, isStatic);
            const apart = plan.lanes.every(lane => lane.every((block, i) => i === 0 || block.begin >= lane[i - 1].end));
            result.push([order.length, plan.lanes.flat().length, apart, plan.end]);
          }
          return result;""")
        # 4 x (2 + 6 + 4) = 48 over 3 places: heavy tiles first to whoever is free comes out even.
        self.assertEqual([row[:3] for row in seen], [[12, 12, True], [12, 12, True]])
        self.assertGreaterEqual(seen[0][3], 16)
        self.assertLessEqual(seen[0][3], seen[1][3])

    def test_the_report_is_drawn(self):
        seen = self.open(self.run_program("report", "--html", "-"), """
          return {rows: document.querySelectorAll('#winners tbody tr').length,
                  problem: document.querySelector('#winners tbody td:nth-child(2)').textContent,
                  configs: [...document.querySelectorAll('#winners td:last-child span')].map(each => [each.textContent, each.title]),
                  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
                  wider: [...document.querySelectorAll('#winners .wider')].map(each => !each.hidden),
                  pictures: document.querySelectorAll('svg.picture').length};""", width=PHONE)
        self.assertLessEqual(seen["overflow"], 0, "the page scrolls sideways")
        self.assertEqual(seen["wider"], [True])
        self.assertRegex(seen["configs"][0][0], r"^fwd_mma_sm80 \d+ x \d+ keys")
        self.assertIn("block_n=", seen["configs"][0][1])
        self.assertEqual(seen["rows"], 1)
        self.assertEqual(seen["problem"], "fwd fp16 num_heads=8:2 seqlen=1024 head_dim=64 causal")
        self.assertEqual(seen["pictures"], 2)

    def test_an_estimate_has_no_age(self):
        database = str(self.root / "estimates.db")
        self.run_program("tune", "--quiet", "--arch", "sm_86", "--candidates", "2", "--cache", database, "fwd", "fp16", "seqlen=256", "head_dim=64")
        cells = "return [...document.querySelectorAll('#winners tbody td')].map(each => each.textContent);"
        seen = self.open(self.run_program("report", "--html", "-", "--cache", database), cells)
        self.assertEqual((seen[2], seen[8]), ("estimate", "-"))
        row, = [line for line in self.run_program("report", "--cache", database).splitlines() if line.startswith("estimate")]
        self.assertEqual(row.split()[4], "-", row)

    def test_a_block_mask_is_one_picture(self):
        look = """
          const mask = document.querySelector('#mask');
          return [mask.querySelectorAll('svg.picture').length, mask.querySelectorAll('svg.block-mask').length,
                  document.documentElement.scrollWidth - document.documentElement.clientWidth, mask.textContent.includes('visited')];"""
        problem = ["--arch", "sm_90a", "fwd", "bf16", "num_heads=16", "seqlen=4096", "head_dim=128"]
        seen = self.open(self.inspect_page("--mask-random", "0.3", *problem, "blocks=128"), look, width=PHONE)
        self.assertEqual(seen, [0, 1, 0, False])
        seen = self.open(self.inspect_page("--mask", "k <= q && q - k < 1024", *problem), look, width=PHONE)
        self.assertEqual(seen, [1, 0, 0, True], "the window says all of it")

    def test_other_problems_and_what_is_not_known(self):
        count = "return [document.querySelectorAll('main > section').length, document.querySelectorAll('svg.picture').length];"
        cases = ((["--no-compile", "--arch", "sm_90", "fwd bf16 seqlen=0 head_dim=64"], None),
                 (["--arch", "sm_90", "fwd bf16 batch=4 num_heads=32:8 seqlen=1:8192 head_dim=128"], 4),
                 (["--arch", "sm_90", "fwd bf16 num_heads=2 seqlen=2048 head_dim=64 lengths=packed batch=4 causal"], 3),  # no roofline
                 (["--arch", "sm_86", "--family", "fwd_naive", "fwd fp32 seqlen=64 head_dim=8"], None),
                 (["--arch", "sm_89", "fwd fp32 seqlen=100:7 head_dim=64 window_left=3 window_right=2"], 4))
        for words, pictures in cases:
            sections, drawn = self.open(self.inspect_page(*words), count)
            self.assertEqual(sections, 9, words)
            if pictures is not None:
                self.assertEqual(drawn, pictures, words)


if __name__ == "__main__":
    if BROWSER is None:
        print("skipped: no chromium here (apt-get install chromium)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
