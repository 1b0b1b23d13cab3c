"""Counts the test cases of a bazel run: python3 count_tests.py EVENTS, bazel's --build_event_json_file.

Prints "passed failed skipped". A target that did not build, crashed or timed out is one failed case, unless it has
failed cases of its own. A test that bazel skips, because it cannot be here, is one skipped case. Of repeated attempts the
last one counts.
"""
import json
import sys
import urllib.parse
import xml.etree.ElementTree


def cases(path):
    """The counts of one test.xml."""
    passed = failed = skipped = 0
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.get("status") == "notrun" or case.get("result") in ("skipped", "suppressed"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main():
    results, unbuilt, left_out = {}, 0, 0
    with open(sys.argv[1], encoding="utf-8") as events:
        for line in events:
            event = json.loads(line)
            if "testResult" in event["id"]:
                which = {k: v for k, v in event["id"]["testResult"].items() if k != "attempt"}
                results[json.dumps(which, sort_keys=True)] = event.get("testResult", {})
            elif event.get("aborted", {}).get("reason") == "SKIPPED":
                left_out += event["id"].get("targetCompleted", {}).get("label", "").endswith("_test")
            elif "targetCompleted" in event["id"] and not event.get("completed", {}).get("success"):
                unbuilt += 1
    total = [0, unbuilt, left_out]
    for result in results.values():
        counts = [0, 0, 0]
        for output in result.get("testActionOutput", ()):
            if output.get("name") == "test.xml":
                try:
                    counts = list(cases(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)))
                except (OSError, xml.etree.ElementTree.ParseError):
                    counts = [0, 1, 0]  # cut off, or gone
        if result.get("status") != "PASSED" and counts[1] == 0:
            counts[1] = 1
        total = [t + c for t, c in zip(total, counts)]
    print(*total)


main()
