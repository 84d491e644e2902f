"""CSS, XPath and JMESPath over a page: parsel's selectors."""

from trawl.selectors.select import Selector, SelectorList, SelectorType, css_to_xpath, found, select

__all__ = ["Selector", "SelectorList", "SelectorType", "css_to_xpath", "found", "select"]
