//! Runs `FindProxyForURL` with bounded time and memory.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant};

use reqwest::Url;
use rquickjs::{CatchResultExt as _, Context, Function, Runtime};

/// Blocks: the script may resolve names.
pub(super) fn find_proxy(script: &str, url: &Url) -> Result<String, String> {
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    runtime.set_memory_limit(MEMORY_LEN_MAX);
    runtime.set_max_stack_size(STACK_LEN_MAX);
    let until = Instant::now() + TIME_MAX;
    let is_late = Rc::new(Cell::new(false));
    let late = is_late.clone();
    runtime.set_interrupt_handler(Some(Box::new(move || {
        late.set(Instant::now() >= until);
        late.get()
    })));
    let context = Context::full(&runtime).map_err(|error| error.to_string())?;
    let found = context.with(|context| {
        let run = || {
            let lookups = Cell::new(0);
            let resolve = move |host: String| {
                lookups.set(lookups.get() + 1);
                if lookups.get() <= LOOKUPS_MAX && Instant::now() < until {
                    resolve(&host)
                } else {
                    String::new()
                }
            };
            context.globals().set("__resolve", Function::new(context.clone(), resolve)?)?;
            context.globals().set("__ownAddress", Function::new(context.clone(), own_address)?)?;
            context.eval::<(), _>(HELPERS)?;
            // Scripts of browsers are not in strict mode.
            let mut options = rquickjs::context::EvalOptions::default();
            options.strict = false;
            context.eval_with_options::<(), _>(script, options)?;
            let find: Function<'_> = context.globals().get("FindProxyForURL")?;
            // Browsers leave out what may be secret.
            let (shown, host) = (shown(url), url.host_str().unwrap_or_default().to_owned());
            find.call::<_, String>((shown, host))
        };
        run().catch(&context).map_err(|error| error.to_string())
    });
    found.map_err(|error| {
        let what = if is_late.get() {
            format!("it takes longer than {} s", TIME_MAX.as_secs())
        } else {
            error
        };
        what.lines().next().unwrap_or_default().chars().take(200).collect()
    })
}

fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.into()
}

/// An IPv4 address of a host, as scripts expect; empty if there is none.
fn resolve(host: &str) -> String {
    let found = (host, 0)
        .to_socket_addrs()
        .ok()
        .into_iter()
        .flatten()
        .map(|address| address.ip())
        .find(IpAddr::is_ipv4);
    found.map_or_else(String::new, |address| address.to_string())
}

fn own_address() -> String {
    let probe = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect(SocketAddr::from(([192, 0, 2, 1], 9))).ok()?;
        socket.local_addr().ok()
    };
    probe().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip()).to_string()
}

const HELPERS: &str = include_str!("helpers.js");
const MEMORY_LEN_MAX: usize = 32 << 20;
const STACK_LEN_MAX: usize = 256 << 10;
const TIME_MAX: Duration = Duration::from_secs(2);
const LOOKUPS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn find(body: &str) -> Result<String, String> {
        let url = Url::parse("https://user:secret@mirror.Example.org:8443/tools/manifest").unwrap();
        find_proxy(&format!("function FindProxyForURL(url, host) {{ {body} }}"), &url)
    }

    #[test]
    fn a_script_sees_the_url_and_calls_the_standard_functions() {
        assert_eq!(
            find("return url + ' ' + host;").unwrap(),
            "https://mirror.example.org:8443/tools/manifest mirror.example.org"
        );
        for (expression, expected) in [
            ("dnsDomainIs(host, '.EXAMPLE.org')", true),
            ("dnsDomainIs(host, '.example.com')", false),
            ("isPlainHostName('www')", true),
            ("isPlainHostName(host)", false),
            ("localHostOrDomainIs('www', 'www.example.org')", true),
            ("localHostOrDomainIs('ftp', 'www.example.org')", false),
            ("shExpMatch(url, '*/tools/*')", true),
            ("shExpMatch(host, 'm?rror.*.org')", true),
            ("shExpMatch(host, 'mirror')", false),
            ("shExpMatch('a'.repeat(500), '*a*a*a*a*a*a*a*b')", false),
            ("isInNet('10.1.2.3', '10.1.0.0', '255.255.0.0')", true),
            ("isInNet('10.2.2.3', '10.1.0.0', '255.255.0.0')", false),
            ("isInNet('localhost', '127.0.0.0', '255.0.0.0')", true),
            ("isInNet('10.1.2.300', '0.0.0.0', '0.0.0.0')", false),
            ("dnsResolve('localhost') === '127.0.0.1'", true),
            ("isResolvable('no.such.name.invalid')", false),
            ("dnsDomainLevels('a.b.c') === 2", true),
            ("/^\\d+\\.\\d+\\.\\d+\\.\\d+$/.test(myIpAddress())", true),
            (
                "weekdayRange('SUN', 'SAT', 'GMT') && timeRange(0, 24) && dateRange(1, 31) && dateRange(2000, 2999)",
                true,
            ),
            ("dateRange('JAN', 'DEC') && !dateRange(1990) && timeRange(0, 0, 0, 23, 59, 59)", true),
            ("dateRange(1, 'JAN', 1995, 1, 'FEB', 1995)", false),
            ("(undeclared = 1, undeclared === 1)", true),
        ] {
            assert_eq!(
                find(&format!("return String({expression});")).as_deref(),
                Ok(if expected { "true" } else { "false" }),
                "{expression}"
            );
        }
    }

    #[test]
    fn a_script_that_is_wrong_or_greedy_ends_with_its_reason() {
        let began = Instant::now();
        for (body, reason) in [
            ("while (true) {}", "longer than 2 s"),
            ("let text = 'x'; while (true) { text += text; }", "too long"),
            ("const list = []; while (true) { list.push(new Array(1000).fill(1)); }", "memory"),
            ("function f() { return f() + 1; } return f();", "stack"),
            ("return nothing.here;", "nothing"),
            ("syntax error here", ""),
            ("return 7;", ""),
        ] {
            let error = find(body).unwrap_err();
            assert!(error.to_lowercase().contains(reason), "{body}: {error}");
        }
        assert!(find_proxy("var x = 1;", &Url::parse("http://h/").unwrap()).is_err());
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
