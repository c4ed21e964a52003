use crate::prelude::*;

pub(crate) fn check_page_in_browser(site: &TestSite, page: &str, bars: usize) {
    let text = std::fs::read_to_string(site.path(page)).expect("a page");
    for outside in ["src=", "href=\"http", "url(", "@import", "<script"] {
        assert!(!text.contains(outside), "the page holds {outside}");
    }
    let browser = ["chromium-headless-shell", "chromium"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok());
    let browser = browser.expect("the package chromium-headless-shell is installed");
    let run = |options: &[&str]| {
        let mut command = Command::new(browser);
        command.args(words("--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --enable-logging=stderr --hide-scrollbars"));
        command.arg(format!("--user-data-dir={}", site.path("browser").display())).args(options);
        command
            .arg(format!("file://{}", site.path(page).display()))
            .stdin(Stdio::null())
            .output()
            .expect("the browser starts")
    };
    let dom = run(&["--dump-dom", "--virtual-time-budget=2000"]);
    let (html, output_text) =
        (String::from_utf8_lossy(&dom.stdout), String::from_utf8_lossy(&dom.stderr));
    assert!(dom.status.success(), "{output_text}");
    assert!(
        html.matches("<svg").count() >= 4
            && html.matches("class=\"bar ").count() >= bars
            && html.contains("How this was measured"),
        "{html}"
    );
    assert!(!output_text.contains("CONSOLE"), "{output_text}");
    let (light, dark) = (site.path("light.png"), site.path("dark.png"));
    for (picture, scheme) in [
        (&light, "--blink-settings=preferredColorScheme=1"),
        (&dark, "--blink-settings=preferredColorScheme=0"),
    ] {
        let shot = run(&[
            "--window-size=900,2400",
            scheme,
            &format!("--screenshot={}", picture.display()),
        ]);
        assert!(shot.status.success(), "{}", String::from_utf8_lossy(&shot.stderr));
    }
    let read = |picture| std::fs::read(picture).expect("a picture");
    assert!(read(&light).len() > 20_000 && read(&light) != read(&dark), "two pictures, one dark");
}
