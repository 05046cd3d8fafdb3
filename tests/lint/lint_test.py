"""Each lint check against small trees that it must accept or reject."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LINT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(LINT))

import cpp_source  # noqa: E402
import layering  # noqa: E402
import unbuilt  # noqa: E402

ROOT = pathlib.Path(os.environ.get("TENURE_ROOT", LINT.parent.parent))
BUF = os.environ.get("TENURE_BUF", str(ROOT / "tests/node/node_modules/.bin/buf"))


class TreeTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tenure-lint-"))
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run_check(self, *command):
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def run_script(self, script, *arguments):
        return self.run_check(sys.executable, str(LINT / script), "--root", str(self.root), *arguments)

    def assert_rejects(self, script, path, text, words):
        self.write(path, text)
        status, output = self.run_script(script)
        self.assertEqual(status, 1, output)
        self.assertIn(words, output)
        self.assertIn(path + ":", output)
        (self.root / path).unlink()

    def assert_accepts(self, script, path, text):
        self.write(path, text)
        status, output = self.run_script(script)
        self.assertEqual(status, 0, output)
        (self.root / path).unlink()


class Layering(TreeTest):
    def test_rejects_an_include_upwards(self):
        self.assert_rejects(
            "layering.py", "common/base/a.h", '#include "common/db/pool.h"\n', "common/base may not include common/db"
        )
        self.assert_rejects(
            "layering.py", "common/db/a.cc", '#include "common/store/s.h"\n', "common/db may not include common/store"
        )
        self.assert_rejects(
            "layering.py",
            "common/store/a.cc",
            '#include "services/scheduler/sweep.h"\n',
            "common/store may not include services/scheduler",
        )

    def test_rejects_one_service_in_another(self):
        self.assert_rejects(
            "layering.py",
            "services/scheduler/a.cc",
            '#include "services/entitlement/check.h"\n',
            "services/scheduler may not include services/entitlement",
        )

    def test_rejects_a_service_in_the_host_that_services_share(self):
        self.assert_rejects(
            "layering.py",
            "services/host/a.cc",
            '#include "services/scheduler/sweep.h"\n',
            "services/host may not include services/scheduler",
        )
        self.assert_accepts("layering.py", "services/scheduler/a.cc", '#include "services/host/service_host.h"\n')

    def test_rejects_libraries_outside_their_layer(self):
        self.assert_rejects("layering.py", "services/scheduler/a.cc", "#include <pqxx/pqxx>\n", "common/db")
        self.assert_rejects("layering.py", "common/base/log.cc", "#include <nlohmann/json.hpp>\n", "json.cc only")
        self.assert_rejects("layering.py", "common/http/a.h", "#include <boost/beast.hpp>\n", ".cc files")
        self.assert_rejects("layering.py", "common/domain/a.cc", "#include <grpcpp/grpcpp.h>\n", "pure")

    def test_rejects_other_protos_in_the_domain(self):
        self.assert_rejects(
            "layering.py", "common/domain/a.h", '#include "tenure/webhook/v1/webhook_ingest.pb.h"\n', "knows only"
        )

    def test_rejects_the_test_library_in_product_code(self):
        self.assert_rejects(
            "layering.py", "common/db/pool.cc", '#include "tests/support/pg_cluster.h"\n', "for tests only"
        )

    def test_rejects_a_circle_of_folders(self):
        self.write("common/http/a.h", '#include "common/obs/a.h"\n')
        self.write("common/obs/a.h", '#include "common/http/a.h"\n')
        status, output = self.run_script("layering.py")
        self.assertEqual(status, 1)
        self.assertIn("common/http -> common/obs -> common/http", output)

    def test_accepts_what_the_direction_allows(self):
        for path, text in [
            ("common/domain/a.cc", '#include "common/base/clock.h"\n#include "tenure/subscription/v1/fact.pb.h"\n'),
            ("common/db/a.cc", '#include <pqxx/pqxx>\n#include "common/obs/metrics.h"\n'),
            ("common/http/a.cc", "#include <boost/beast.hpp>\n"),
            ("common/db/a_test.cc", '#include "tests/support/pg_cluster.h"\n'),
            ("services/scheduler/main.cc", '#include "common/store/s.h"\n#include "services/scheduler/sweep.h"\n'),
            ("common/base/a.cc", '// #include "common/db/pool.h"\nint a;\n'),
        ]:
            self.assert_accepts("layering.py", path, text)

    def test_rejects_an_empty_tree(self):
        self.assertEqual(self.run_script("layering.py")[0], 1)

    def test_rejects_links_upwards_and_into_tests(self):
        graph = {
            "tenure_base": {"dir": "common/base", "links": []},
            "tenure_db": {"dir": "common/db", "links": ["tenure_base", "PkgConfig::libpqxx"]},
            "tenure_domain": {"dir": "common/domain", "links": ["tenure_base"]},
            "tenure_testlib": {"dir": "tests/support", "links": ["tenure_db"]},
            "db_test": {"dir": "common/db", "links": ["tenure_db", "tenure_testlib", "tenure_test_main"]},
        }
        self.assertEqual(layering.check_links(graph), [])
        for name, link, words in [
            ("tenure_base", "tenure_db", "links upwards"),
            ("tenure_db", "tenure_testlib", "test code"),
            ("tenure_domain", "gRPC::grpc++", "nothing but base"),
        ]:
            bad = {key: {"dir": value["dir"], "links": list(value["links"])} for key, value in graph.items()}
            bad[name]["links"].append(link)
            problems = layering.check_links(bad)
            self.assertEqual(len(problems), 1, problems)
            self.assertIn(words, problems[0])


class Forbidden(TreeTest):
    def test_rejects_bare_clocks_and_sleeps(self):
        for text in [
            "auto t = absl::Now();",
            "auto t = std::chrono::system_clock::now();",
            "auto t = std::chrono::steady_clock :: now();",
            "std::this_thread::sleep_for(x);",
            "absl::SleepFor(x);",
            "usleep(5);",
            "sleep(1);",
            "::sleep(1);",
            "nanosleep(&a, &b);",
            "time_t t = time(nullptr);",
            "clock_gettime(CLOCK_REALTIME, &t);",
        ]:
            self.assert_rejects("forbidden.py", "common/db/a.cc", f"void F() {{ {text} }}\n", "a.cc:1")
        self.assert_rejects("forbidden.py", "tests/faults/a.cc", "void F() { tenure::SleepFor(x); }\n", "TestSignal")

    def test_accepts_them_where_they_live_and_where_they_are_words(self):
        self.assert_accepts("forbidden.py", "common/base/clock.cc", "auto t = absl::Now();\n")
        self.assert_accepts("forbidden.py", "common/base/periodic.cc", "void F() { std::this_thread::sleep_for(d); }\n")
        self.assert_accepts("forbidden.py", "common/db/a.cc", '// absl::Now() is wrong\nauto s = "absl::Now()";\n')
        self.assert_accepts("forbidden.py", "common/db/a.cc", "auto t = clock.Now(); x.sleep(1); p->sleep(2);\n")

    def test_rejects_sql_in_product_code(self):
        for literal in [
            '"SELECT 1"',
            '"INSERT INTO t VALUES (1)"',
            '"update subscription set status = $1"',
            '"DELETE " "FROM t"',
            'R"sql(\n  select id from t\n)sql"',
            '"WITH c AS (SELECT id FROM t) UPDATE s SET a = 1"',
        ]:
            self.assert_rejects("forbidden.py", "common/store/a.cc", f"const char* k = {literal};\n", "SQL text")

    def test_accepts_words_that_look_like_sql_and_sql_in_tests(self):
        for literal in ['"select the file"', '"SELECT ... FOR UPDATE SKIP LOCKED is missing"', '"Update failed"']:
            self.assert_accepts("forbidden.py", "common/store/a.cc", f"const char* k = {literal};\n")
        self.assert_accepts("forbidden.py", "common/store/a.cc", '// "SELECT 1"\nint a;\n')
        self.assert_accepts("forbidden.py", "common/store/a_test.cc", 'const char* k = "SELECT 1";\n')

    def test_rejects_tests_that_test_nothing(self):
        for text in ["GTEST_SKIP();", "EXPECT_TRUE(true);", "ASSERT_FALSE( false );", "SUCCEED();"]:
            self.assert_rejects("forbidden.py", "tests/faults/a_test.cc", f"void F() {{ {text} }}\n", "a_test.cc:1")
        self.assert_rejects("forbidden.py", "tests/faults/a_test.cc", "TEST(A, DISABLED_B) {}\n", "DISABLED_")


class Unbuilt(unittest.TestCase):
    def test_names_a_file_that_no_target_has(self):
        graph = {"a": {"sources": ["common/a.cc", "common/a.h"]}, "b": {}}
        paths = ["common/a.cc", "common/a_test.cc", "common/other.h", "tests/fuzz/x_fuzz.cc"]
        self.assertEqual(unbuilt.unbuilt(paths, graph), ["common/a_test.cc"])


class Shell(TreeTest):
    def run_shell(self, text, mode=0o755):
        self.write("scripts/a.sh", text)
        (self.root / "scripts/a.sh").chmod(mode)
        return self.run_check("bash", str(LINT / "shell.sh"), str(self.root))

    def test_rejects_bad_scripts(self):
        self.assertEqual(self.run_shell("if true; then\n")[0], 1)
        self.assertEqual(self.run_shell("#!/bin/bash\ntrue\n")[0], 1)
        self.assertEqual(self.run_shell("#!/bin/bash\nset -euo pipefail\n", 0o644)[0], 1)

    def test_accepts_good_ones(self):
        self.assertEqual(self.run_shell("#!/bin/bash\nset -euo pipefail\n")[0], 0)
        self.assertEqual(self.run_shell("f() { true; }\n", 0o644)[0], 0)


class Source(unittest.TestCase):
    def test_a_digit_separator_is_no_character(self):
        text = "int a = 1'000; // it's\nint b = absl::Now();"
        self.assertIn("absl::Now", cpp_source.code_only(text))
        self.assertNotIn("it", cpp_source.code_only(text).split("\n")[0][8:])

    def test_quotes_in_comments_and_raw_strings(self):
        text = 'auto a = R"x(say "hi" // no)x"; /* " */ auto b = "c";'
        self.assertEqual([value for _, value in cpp_source.strings(text)], ['say "hi" // no', "c"])


class ClangFormat(TreeTest):
    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / ".clang-format", self.root)

    def test_rejects_a_file_that_it_would_change(self):
        self.write("common/a.cc", "int  a ;\n")
        status, output = self.run_script("clang_format.py")
        self.assertEqual(status, 1, output)
        self.assertIn("+int a;", output)

    def test_accepts_a_formatted_file(self):
        self.write("common/a.cc", "int a;\n")
        status, output = self.run_script("clang_format.py")
        self.assertEqual(status, 0, output)


class Buf(TreeTest):
    GOOD = (
        'syntax = "proto3";\n\npackage tenure.x.v1;\n\n// Asks.\nmessage Question {\n  // Who.\n  string subject = 1;\n}\n'
    )

    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / "buf.yaml", self.root)
        (self.root / "proto/google").mkdir(parents=True)
        self.write("proto/tenure/x/v1/x.proto", self.GOOD)

    def run_buf(self, check):
        return self.run_check("bash", str(LINT / "buf.sh"), check, str(self.root), BUF)

    def release(self):
        subprocess.run([BUF, "build", "-o", "proto/released.binpb"], cwd=self.root, check=True)

    def test_accepts_the_good_sample(self):
        self.release()
        for check in ("lint", "format", "breaking"):
            status, output = self.run_buf(check)
            self.assertEqual(status, 0, check + output)

    def test_lint_rejects_a_field_without_a_comment(self):
        self.write("proto/tenure/x/v1/x.proto", self.GOOD.replace("  // Who.\n", ""))
        status, output = self.run_buf("lint")
        self.assertNotEqual(status, 0)
        self.assertIn("subject", output)

    def test_format_rejects_other_spacing(self):
        self.write("proto/tenure/x/v1/x.proto", self.GOOD.replace("subject = 1", "subject  =  1"))
        status, output = self.run_buf("format")
        self.assertNotEqual(status, 0)
        self.assertIn("./dev fmt", output)

    def test_breaking_rejects_a_renumbered_field(self):
        self.release()
        self.write("proto/tenure/x/v1/x.proto", self.GOOD.replace("subject = 1", "subject = 2"))
        status, output = self.run_buf("breaking")
        self.assertNotEqual(status, 0)
        self.assertIn("released contract", output)

    def test_a_missing_buf_says_what_to_do(self):
        status, output = self.run_check("bash", str(LINT / "buf.sh"), "lint", str(self.root), "/nowhere/buf")
        self.assertEqual(status, 1)
        self.assertIn("./dev deps", output)


class OpenApi(TreeTest):
    GOOD = (ROOT / "docs/openapi/probes.yaml").read_text(encoding="utf-8")

    def lint(self, text):
        self.write("api.yaml", text)
        return self.run_check("node", str(ROOT / "tests/node/openapi_lint.mjs"), str(self.root / "api.yaml"))

    def test_accepts_a_right_document(self):
        status, output = self.lint(self.GOOD)
        self.assertEqual(status, 0, output)

    def test_rejects_a_name_that_leads_nowhere(self):
        status, output = self.lint(self.GOOD.replace("schemas/Readiness", "schemas/Nothing", 1))
        self.assertEqual(status, 1, output)
        self.assertIn("no-unresolved-refs", output)

    def test_rejects_a_response_without_a_description(self):
        status, output = self.lint(self.GOOD.replace("description: It runs.", "x-note: none", 1))
        self.assertEqual(status, 1, output)
        self.assertIn("struct", output)


if __name__ == "__main__":
    unittest.main()
